"""Draws stacks as a flame graph: an SVG without script, style sheet or any other file.

The width of a frame is its share of the samples. Callers are below the functions they
call; frames of one caller are sorted by name. A browser shows the name and the share of
a frame as its title.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

Stack = tuple[str, ...]

_WIDTH = 1_200
_MARGIN = 10
_ROW = 17
_TOP = 56
_LETTER = 6.6
#: The graph omits narrower frames, and all frames above them.
_WIDTH_MIN = 0.4
DEPTH_MAX = 150


@dataclass(slots=True)
class _Frame:
    name: str
    samples: int = 0
    called: dict[str, _Frame] = field(default_factory=dict)


def draw_flame_graph(title: str, stacks: Mapping[Stack, int]) -> str:
    """Return an SVG of stacks, each with its number of samples.

    Args:
        title: Title that says what was sampled.
        stacks: Samples of each stack, from the outermost caller to the innermost frame.
    """
    root = _grow(stacks)
    frames = list(_place(root))
    depth = max((level for level, *_ in frames), default=0) + 1
    height = _TOP + depth * _ROW + _MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" fill="#fcfcfb"/>',
        (
            f'<text x="{_MARGIN}" y="22" font-size="15" fill="#0b0b0b">'
            f"{_text(title)}</text>"
        ),
        (
            f'<text x="{_MARGIN}" y="42" fill="#52514e">{root.samples:,} samples; a '
            "frame is as wide as its share of them</text>"
        ),
    ]
    for level, left, width, frame in frames:
        top = height - _MARGIN - (level + 1) * _ROW
        share = frame.samples / root.samples
        name = _text(frame.name)
        parts.append(
            f"<g><title>{name} ({frame.samples:,} samples, {share:.1%})</title>"
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_ROW - 1}" '
            f'fill="{_colour(frame.name)}"/>'
            + _label(frame.name, left, top, width)
            + "</g>"
        )
    return "\n".join([*parts, "</svg>\n"])


def _grow(stacks: Mapping[Stack, int]) -> _Frame:
    root = _Frame("all")
    for stack, samples in stacks.items():
        root.samples += samples
        at = root
        for name in stack[:DEPTH_MAX]:
            at = at.called.setdefault(name, _Frame(name))
            at.samples += samples
    return root


def _place(root: _Frame) -> Iterator[tuple[int, float, float, _Frame]]:
    """Yield every frame with its level, left edge and width."""
    if not root.samples:
        return
    scale = (_WIDTH - 2 * _MARGIN) / root.samples
    waiting = [(0, float(_MARGIN), root)]
    while waiting:
        level, left, frame = waiting.pop()
        width = frame.samples * scale
        if width < _WIDTH_MIN:
            continue
        yield level, left, width, frame
        for name in sorted(frame.called):
            waiting.append((level + 1, left, frame.called[name]))
            left += frame.called[name].samples * scale


def _label(name: str, left: float, top: int, width: float) -> str:
    room = int((width - 6) / _LETTER)
    if room < 3:  # noqa: PLR2004 - a letter and the sign that there are more
        return ""
    shown = name if len(name) <= room else f"{name[: room - 1]}…"
    return (
        f'<text x="{left + 3:.1f}" y="{top + 12}" fill="#0b0b0b">{_text(shown)}</text>'
    )


def _colour(name: str) -> str:
    """Return a warm colour for a name, the same in every graph."""
    mixed = zlib.crc32(name.encode())
    red, green, blue = 205 + mixed % 50, 90 + mixed // 50 % 130, mixed // 6_500 % 55
    return f"#{red:02x}{green:02x}{blue:02x}"


def _text(name: str) -> str:
    """Escape a name; XML allows no control characters."""
    return escape("".join(c if c.isprintable() else "�" for c in name))


def fold(lines: Iterator[str]) -> Counter[Stack]:
    """Read folded stacks of a profiler: frames separated by ;, a space, a count."""
    stacks: Counter[Stack] = Counter()
    for line in lines:
        frames, _, count = line.rstrip("\n").rpartition(" ")
        if frames and count.isdecimal():
            stacks[tuple(frames.split(";"))] += int(count)
    return stacks
