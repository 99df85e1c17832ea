"""Charts as SVG for light and dark backgrounds, using only the standard library.

A chart is an element of a figure, which puts several side by side. Bars and points are
in proportion to their values; every axis has a label with its unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

_WIDTH = 720
_LINE_CHART_HEIGHT = 300
_GAP = 24
#: Margins around the plotted area.
_TOP, _RIGHT, _BOTTOM, _LEFT = 64, 24, 48, 72
_BAR_HEIGHT = 13
_TEXT_HEIGHT = 18
#: Width of an average letter of the legend's text.
_LETTER = 6.4
_TICKS = 5
_FEW_POWERS = 2
_THOUSAND, _MILLION = 1_000, 1_000_000

#: Colours that colour-blind people can tell apart; other shades on a dark background.
_LIGHT = ("#2a78d6", "#e0672b", "#159a6c", "#a04fc4", "#8a6d00", "#b8326a")
_DARK = ("#6aa9f4", "#f39a68", "#4fcf9f", "#cb8ee6", "#d5b544", "#ee7fab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: its label with the unit, and whether it is logarithmic."""

    label: str
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars of one thing; all things in a chart have the same series.

    Attributes:
        name: Name of the thing.
        note: Its guarantee, or an empty string.
        values: Values by series.
    """

    name: str
    values: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A part of a figure, with its size."""

    element: Element
    width: float
    height: float


class _Scale:
    """Maps values to places along an axis that begins at ``first``."""

    def __init__(
        self, values: Sequence[float], *, first: float, length: float, log: bool
    ) -> None:
        assert values, "a chart shows something"
        assert not log or min(values) > 0, "only what is above zero has a logarithm"
        self._log = log
        self._first, self._length = first, length
        self.ticks = (
            _round_factors(min(values), max(values))
            if log
            else _round_steps(max(*values, 0.0))
        )
        self._low, self._high = self.ticks[0], self.ticks[-1]

    def fit(self, values: Sequence[float]) -> None:
        """Use the values as ticks, and begin and end the axis at them."""
        self.ticks = sorted(set(values))
        self._low, self._high = self.ticks[0], self.ticks[-1]

    def place(self, value: float) -> float:
        """Return the place of a value on the axis."""
        low, high, at = (
            (math.log10(one) for one in (self._low, self._high, value))
            if self._log
            else (self._low, self._high, value)
        )
        share = (at - low) / (high - low) if high > low else 0.5
        return self._first + self._length * share


def bar_chart(title: str, unit: Axis, rows: Sequence[Bars]) -> Chart:
    """Draw bars of several things, and group the bars of a thing below its name.

    Args:
        title: Title of the chart.
        unit: The axis of the bars; linear, so that their lengths are in proportion.
        rows: The things from top to bottom.
    """
    assert not unit.log, "a bar begins at zero"
    series = list(rows[0].values)
    row_height = _TEXT_HEIGHT + len(series) * (_BAR_HEIGHT + 2) + 8
    bottom = _TOP + len(rows) * row_height
    chart = _start_chart(title, series)
    longest = [value for row in rows for value in row.values.values()]
    # The space on the right is for the value next to the longest bar.
    scale = _Scale(longest, first=_GAP, length=_WIDTH - 2 * _GAP - 48, log=False)
    _draw_x_axis(chart, unit, scale, top=_TOP - 4, bottom=bottom)
    for number, row in enumerate(rows):
        y = _TOP + number * row_height
        label = _text(chart, row.name, x=_GAP, y=y + 12, kind="name")
        if row.note:
            note = SubElement(label, "tspan", {"class": "note", "dx": "8"})
            note.text = row.note
        for place, (name, value) in enumerate(row.values.items()):
            top = y + _TEXT_HEIGHT + place * (_BAR_HEIGHT + 2)
            length = scale.place(value) - _GAP
            shape = {"x": _GAP, "y": top, "width": length, "height": _BAR_HEIGHT}
            colour = f"fill c{series.index(name)}"
            _draw(chart, "rect", shape, kind=f"bar {colour}")
            _text(
                chart,
                shown(value),
                x=_GAP + length + 4,
                y=top + _BAR_HEIGHT - 2,
                kind="value",
            )
    return Chart(element=chart, width=_WIDTH, height=bottom + _BOTTOM)


def line_chart(
    title: str, x_axis: Axis, y_axis: Axis, lines: Sequence[Line], *, width: int = 720
) -> Chart:
    """Draw lines with a mark at each point.

    If there are few different x values, each gets a tick; otherwise ticks are round.
    """
    assert lines, "a chart shows something"
    chart = _start_chart(title, [line.name for line in lines])
    bottom = _LINE_CHART_HEIGHT - _BOTTOM
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    across = _Scale(xs, first=_LEFT, length=width - _LEFT - _RIGHT, log=x_axis.log)
    if len(set(xs)) <= _TICKS + 2:
        across.fit(xs)
    up = _Scale(ys, first=bottom, length=_TOP - bottom, log=y_axis.log)
    _draw_x_axis(chart, x_axis, across, top=_TOP, bottom=bottom)
    for tick in up.ticks:
        y = up.place(tick)
        ends = {"x1": _LEFT, "x2": width - _RIGHT, "y1": y, "y2": y}
        _draw(chart, "line", ends, kind="grid")
        _text(chart, shown(tick), x=_LEFT - 6, y=y + 4, kind="tick end")
    _text(chart, y_axis.label, x=0, y=0, kind="label middle").set(
        "transform", f"translate(16 {(_TOP + bottom) / 2:.0f}) rotate(-90)"
    )
    for number, line in enumerate(lines):
        places = [(across.place(x), up.place(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        SubElement(
            chart, "polyline", {"points": path, "class": f"line stroke c{number}"}
        )
        for x, y in places:
            mark = {"cx": x, "cy": y, "r": 3}
            _draw(chart, "circle", mark, kind=f"fill c{number}")
    return Chart(element=chart, width=width, height=_LINE_CHART_HEIGHT)


def write_figure(title: str, charts: Sequence[Chart], *, columns: int = 1) -> str:
    """Arrange charts in rows and columns in one SVG document."""
    across = max(chart.width for chart in charts)
    down = max(chart.height for chart in charts)
    lines = math.ceil(len(charts) / columns)
    width, height = across * min(columns, len(charts)), down * lines
    size = {"width": width, "height": height}
    figure = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    figure.set("viewBox", f"0 0 {width:.0f} {height:.0f}")
    for name, value in size.items():
        figure.set(name, f"{value:.0f}")
    SubElement(figure, "title").text = title
    SubElement(figure, "style").text = _style()
    _draw(figure, "rect", {"x": 0, "y": 0, **size}, kind="ground")
    for number, chart in enumerate(charts):
        x, y = number % columns * across, number // columns * down
        chart.element.set("transform", f"translate({x:.0f} {y:.0f})")
        figure.append(chart.element)
    return tostring(figure, encoding="unicode") + "\n"


def shown(value: float) -> str:
    """Format a number in the short form that an axis needs."""
    if value >= _MILLION:
        return f"{value / _MILLION:.4g}M"
    if value >= 10 * _THOUSAND:
        return f"{value / _THOUSAND:.4g}k"
    return f"{value:,.0f}" if value >= _THOUSAND else f"{value:.3g}"


def _start_chart(title: str, series: Sequence[str]) -> Element:
    assert len(series) <= len(_LIGHT), "each series has a colour of its own"
    chart = Element("g")
    _text(chart, title, x=_GAP, y=22, kind="title")
    x = float(_GAP)
    for number, name in enumerate(series):
        square = {"x": x, "y": 33, "width": 10, "height": 10}
        _draw(chart, "rect", square, kind=f"fill c{number}")
        _text(chart, name, x=x + 14, y=42, kind="legend")
        x += 30 + _LETTER * len(name)
    return chart


def _draw_x_axis(
    chart: Element, axis: Axis, scale: _Scale, *, top: float, bottom: float
) -> None:
    for tick in scale.ticks:
        x = scale.place(tick)
        ends = {"x1": x, "x2": x, "y1": top, "y2": bottom}
        _draw(chart, "line", ends, kind="grid")
        _text(chart, shown(tick), x=x, y=bottom + 16, kind="tick middle")
    middle = (scale.place(scale.ticks[0]) + scale.place(scale.ticks[-1])) / 2
    _text(chart, axis.label, x=middle, y=bottom + 36, kind="label middle")


def _draw(
    parent: Element, shape: str, numbers: Mapping[str, float], *, kind: str
) -> None:
    attributes = {name: f"{number:.1f}" for name, number in numbers.items()}
    SubElement(parent, shape, {**attributes, "class": kind})


def _text(parent: Element, text: str, *, x: float, y: float, kind: str) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind}
    element = SubElement(parent, "text", place)
    element.text = text
    return element


def _round_steps(greatest: float) -> list[float]:
    """Return ticks from zero past the value, 1, 2 or 5 times a power of ten apart."""
    rough = (greatest or 1.0) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
    return [number * step for number in range(max(1, math.ceil(greatest / step)) + 1)]


def _round_factors(least: float, greatest: float) -> list[float]:
    """Return powers of ten around the values; if few, 2 and 5 times each as well."""
    low = math.floor(math.log10(least))
    high = max(low + 1, math.ceil(math.log10(greatest)))
    times = (1, 2, 5) if high - low <= _FEW_POWERS else (1,)
    ticks = [one * 10.0**power for power in range(low, high + 1) for one in times]
    below = max(tick for tick in ticks if tick <= least)
    above = min(tick for tick in ticks if tick >= greatest and tick > below)
    return [tick for tick in ticks if below <= tick <= above]


def _style() -> str:
    return (
        "text{font:11px system-ui,sans-serif;fill:#33383d}"
        ".title{font-size:14px;font-weight:600}.name{font-weight:600}"
        ".note{font-weight:400;fill:#5c646b}"
        ".middle{text-anchor:middle}.end{text-anchor:end}"
        ".ground{fill:#fff}.grid{stroke:#dfe3e6}.line{fill:none;stroke-width:2}"
        f"{_colours(_LIGHT)}"
        "@media(prefers-color-scheme:dark){text{fill:#e2e6ea}.note{fill:#a7b0b8}"
        f".ground{{fill:#15191d}}.grid{{stroke:#343b42}}{_colours(_DARK)}}}"
    )


def _colours(colours: Sequence[str]) -> str:
    return "".join(
        f".fill.c{number}{{fill:{colour}}}.stroke.c{number}{{stroke:{colour}}}"
        for number, colour in enumerate(colours)
    )
