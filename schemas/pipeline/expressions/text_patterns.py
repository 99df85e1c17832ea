"""Estimates from a pattern how long Spark may search for it in one text.

Java's matcher backtracks: if a pattern can match a text in several ways, it tries them
all before it fails. ``(a+)+b`` doubles the time with each letter, ``.*.*.*b`` takes
time cubic in the text's length, and a loop over a group overflows the stack. A pattern
is accepted if a failed search takes linear or quadratic time. ``foo.*bar`` takes half a
second for a text of ``SLOW_LENGTH_MAX`` characters, and hours for a megabyte, so
expressions have no value on longer texts (``strict_nodes.py``).

If in doubt, the estimate assumes the worse case: a refused pattern may be fast.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, replace

#: Most characters of a pattern, and most parts after its repeated groups are written
#: out.
PARTS_MAX = 1000
#: Most repetitions of a group; a single character may repeat without end.
REPEATS_MAX = 10
#: Most ways in which optional and repeated parts together may match one text, for a
#: search in constant, linear and quadratic time.
WAYS_MAX = (10_000, 1_000, 10)
#: Most characters of a text whose search takes quadratic time.
SLOW_LENGTH_MAX = 10_000
_OTHER = 1 << 128
_ALL = (1 << 129) - 1
_CLASSES = {
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_",
    "s": " \t\n\r\f\v",
    "h": " \t",
    "v": "\n\r\f\v",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "e": "\x1b", "a": "\a"}
_ZERO_WIDTH = frozenset("bBAzZG")
_FLAGS = frozenset("imsu-")


class PatternError(Exception):
    """Why a pattern is refused, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A character, or a loop over one.

    Attributes:
        letters: Characters that it may match, as a set of bits.
        needed: It matches at least once if its groups do.
        within: Numbers of the optional groups around it.
        loops: It may be repeated often.
        gives_back: The matcher tries fewer repetitions if the rest does not match.
    """

    letters: int
    needed: bool = True
    within: frozenset[int] = frozenset()
    loops: bool = False
    gives_back: bool = True


#: A part without width, such as the end of the text: it may fail, and matches nothing.
_NO_WIDTH = _Part(_ALL, needed=False)


def is_slow_regex(pattern: str) -> bool:
    """Return whether a pattern of Java may take quadratic time.

    Raises:
        PatternError: It may take longer, or it cannot be read.
    """
    if len(pattern) > PARTS_MAX:
        raise PatternError(f"has more than {PARTS_MAX} characters")
    reader = _Reader(pattern)
    power = max(map(_power, (*reader.read_all(), *reader.aside)))
    if power < len(WAYS_MAX) and reader.ways > WAYS_MAX[power]:
        raise PatternError("has too many optional parts")
    return _is_slow(power)


def is_slow_like(pattern: str) -> bool:
    """Return whether a pattern of LIKE may take quadratic time.

    Raises:
        PatternError: It may take longer.
    """
    parts = [
        _Part(_ALL, needed=False, loops=True)
        if char == "%"
        else _Part(_ALL if char == "_" else _bit(char))
        for char in pattern
    ]
    return _is_slow(_power(parts))


def _is_slow(power: int) -> bool:
    if power >= len(WAYS_MAX):
        raise PatternError(
            f"has {power} repetitions that may match the same characters, the search "
            "for its beginning among them"
        )
    return power == len(WAYS_MAX) - 1


def _power(parts: list[_Part]) -> int:
    """Count the loops that may match the same characters."""
    end = len(parts)
    while end and parts[end - 1].loops:
        end -= 1  # nothing follows that could make it give back
    powers: dict[int, int] = {}
    for at, part in enumerate(parts[:end]):
        if not part.loops:
            continue
        powers[at] = 1 + max(
            (
                power
                for former, power in powers.items()
                if parts[former].gives_back and _may_share(parts[former : at + 1])
            ),
            default=0,
        )
    return max(powers.values(), default=0)


def _may_share(parts: list[_Part]) -> bool:
    """Return whether some text may belong to the first or to the last loop."""
    first, *between, last = parts
    shared = first.letters & last.letters
    entered = first.within | last.within
    return bool(shared) and all(
        part.letters & shared
        for part in between
        if part.needed and part.within <= entered
    )


class _Reader:
    """Reads a pattern from left to right.

    Attributes:
        ways: Approximate number of ways in which optional and repeated parts may match.
        aside: Parts of look-arounds, each of which is tried by itself.
    """

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._anchors = True
        self._groups = 0
        self.ways = 1
        self.aside: list[list[_Part]] = []

    def read_all(self) -> list[list[_Part]]:
        """Return the parts of each alternative, after the search for its start."""
        branches = []
        while True:
            anchored = self._anchors and self._text.startswith(("^", r"\A"), self._at)
            start = [] if anchored else [_Part(_ALL, needed=False, loops=True)]
            branches.append(start + self._sequence(start))
            if self._at == len(self._text):
                return branches
            if self._take() != "|":
                raise PatternError("has a closing bracket without an opening one")

    def _sequence(self, before: list[_Part]) -> list[_Part]:
        parts: list[_Part] = []
        ways, former = self.ways, _NO_WIDTH
        self.ways = 1
        while self._at < len(self._text) and self._peek() not in "|)":
            own, self.ways = self.ways, 1
            atom = self._atom(before + parts)
            repeated = self._quantified(atom)
            if not _ends(former, repeated):
                ways = _bounded(ways * own)
            former = atom[0] if _is_single(atom) else _NO_WIDTH
            parts += repeated
            if len(parts) > PARTS_MAX:
                raise PatternError(f"has more than {PARTS_MAX} parts")
        self.ways = _bounded(ways * self.ways)
        return parts

    def _atom(self, before: list[_Part]) -> list[_Part]:
        """Read one atom, which may be repeated."""
        char = self._take()
        if char in "^$":
            return [_NO_WIDTH]
        if char == "(":
            return self._group(before)
        if char == "[":
            return [_Part(self._class())]
        if char == "\\":
            letters = self._escape()
            return [_NO_WIDTH if letters is None else _Part(letters)]
        if char == ".":
            return [_Part(_ALL)]
        if char in "*+?{":
            raise PatternError(f"has a {char} that follows nothing")
        return [_Part(_bit(char))]

    def _group(self, before: list[_Part]) -> list[_Part]:
        if self._text.startswith(("?=", "?!", "?<=", "?<!"), self._at):
            self._at = self._text.index("?", self._at) + 1
            self._at += 2 if self._peek() == "<" else 1
            self._look_around(before)
            return [_NO_WIDTH]
        if self._peek() == "?":
            self._take()
            if self._flags():
                return []
        branches = [self._sequence(before)]
        while self._peek() == "|":
            self._take()
            branches.append(self._sequence(before))
        self._close()
        if len(branches) == 1:
            return branches[0]
        self.ways = _bounded(self.ways * _most_alike(branches))
        return [part for one in branches for part in self._left_out(one)]

    def _look_around(self, before: list[_Part]) -> None:
        start = self._at
        while True:
            self.aside.append(before + self._sequence(before))
            if self._peek() != "|":
                break
            self._take()
        if "(" in self._text[start : self._at]:
            raise PatternError("has a group within a look-ahead or look-behind")
        self._close()

    def _flags(self) -> bool:
        """Read what follows ``(?``; return whether the group is only flags."""
        if self._peek() == "<":
            end = self._text.find(">", self._at)
            if end < 0 or not self._text[self._at + 1 : end].isalnum():
                raise PatternError("has a group that cannot be read")
            self._at = end + 1
            return False
        if self._peek() == ">":
            self._take()
            return False
        while self._peek() in _FLAGS:
            if self._take() == "m":
                self._anchors = False
        ending = self._take()
        if ending not in ":)":
            raise PatternError("has a group that cannot be read")
        return ending == ")"

    def _close(self) -> None:
        if self._take() != ")":
            raise PatternError("has a bracket that is not closed")

    def _quantified(self, atom: list[_Part]) -> list[_Part]:
        least, most = self._quantifier()
        if (least, most) == (1, 1):
            return atom
        gives_back = self._peek() != "+"
        if self._peek() in "+?" and self._peek():
            self._take()
        single = _is_single(atom)
        if most is None or (single and most - least > REPEATS_MAX):
            if not single:
                raise PatternError("repeats a group without end")
            loop = replace(atom[0], needed=least > 0, loops=True, gives_back=gives_back)
            return [atom[0]] * max(0, least - 1) + [loop]
        if not single and most > REPEATS_MAX:
            raise PatternError(f"repeats a group more than {REPEATS_MAX} times")
        self.ways = _bounded(self.ways**most * (most - least + 1))
        copies = [self._left_out(atom) for _ in range(most - least)]
        return atom * least + [part for copy in copies for part in copy]

    def _left_out(self, parts: list[_Part]) -> list[_Part]:
        """Mark these parts as optional."""
        self._groups += 1
        return [replace(part, within=part.within | {self._groups}) for part in parts]

    def _quantifier(self) -> tuple[int, int | None]:
        char = self._peek()
        if char and char in "*+?":
            self._take()
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return 1, 1
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if end < 0 or not least.isdecimal() or not (most.isdecimal() or not most):
            raise PatternError("has a repetition that cannot be read")
        if max(int(least), int(most or 0)) > PARTS_MAX:
            raise PatternError(f"repeats something more than {PARTS_MAX} times")
        self._at = end + 1
        if not comma:
            return int(least), int(least)
        return int(least), int(most) if most else None

    def _class(self) -> int:
        """Read a character class; a complex one may match everything."""
        negated = self._peek() == "^"
        if negated:
            self._take()
        letters, simple, first = 0, True, True
        while first or self._peek() != "]":
            first = False
            char = self._take()
            if char == "[" or (char == "&" and self._peek() == "&"):
                simple = False
                if char == "[":
                    self._class()
                continue
            low = self._escape() if char == "\\" else _bit(char)
            letters |= low or 0
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._take()
                high = self._take()
                if char == "\\" or high in "\\[":
                    simple = False
                    self._at -= 1 if high == "[" else 0
                    if high == "\\":
                        self._escape()
                    continue
                letters |= _range(char, high)
        self._take()
        if not simple:
            return _ALL
        folded = _folded(letters)
        return _ALL & ~letters | _OTHER if negated else folded

    def _escape(self) -> int | None:
        r"""Read what follows a backslash; return None if it has no width."""
        char = self._take()
        if char in _ZERO_WIDTH:
            return None
        if char.lower() in _CLASSES:
            letters = _set(_CLASSES[char.lower()])
            return letters if char.islower() else _ALL & ~letters
        if char in _CONTROLS:
            return _bit(_CONTROLS[char])
        if char in "pP":
            end = self._text.find("}", self._at)
            self._at = end + 1 if self._peek() == "{" and end > 0 else self._at + 1
            return _ALL
        if char in "xu":
            digits = {"x": 2, "u": 4}[char]
            code = self._text[self._at : self._at + digits]
            self._at += digits
            if len(code) < digits or not set(code) <= set(string.hexdigits):
                raise PatternError("has an escape that cannot be read")
            return _bit(chr(int(code, 16)))
        if char.isalnum():
            raise PatternError(
                "refers back to a group"
                if char in "123456789k"
                else f"has the escape \\{char}, which is not known here"
            )
        return _bit(char)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at == len(self._text):
            raise PatternError("ends too early")
        self._at += 1
        return self._text[self._at - 1]


def _bounded(ways: int) -> int:
    return min(ways, max(WAYS_MAX) + 1)


def _is_single(parts: list[_Part]) -> bool:
    """Return whether this is one character, however it is written."""
    return len(parts) == 1 and parts[0] == _Part(parts[0].letters)


def _ends(former: _Part, following: list[_Part]) -> bool:
    """Return whether the following part determines where a repetition ends.

    For example, a point after ``[0-9]{1,3}`` can only follow the last digit.
    """
    first = following[0] if following else _NO_WIDTH
    is_there = first.needed and not first.within
    return is_there and not former.letters & first.letters


def _most_alike(branches: list[list[_Part]]) -> int:
    """Return how many alternatives, at most, may begin with the same character."""
    begins = [
        one[0].letters if one and one[0].needed and not one[0].within else _ALL
        for one in branches
    ]
    return max(sum(one >> bit & 1 for one in begins) for bit in range(129))


def _bit(char: str) -> int:
    """Return the set of a character, in both cases: a flag may make them equal."""
    return _set({char.lower(), char.upper(), char})


def _set(chars: Iterator[str] | set[str] | str) -> int:
    letters = 0
    for char in chars:
        letters |= 1 << ord(char) if len(char) == 1 and char.isascii() else _OTHER
    return letters


def _range(low: str, high: str) -> int:
    letters = _OTHER if not high.isascii() else 0
    for code in range(ord(low), min(ord(high), 127) + 1):
        letters |= 1 << code
    return letters


def _folded(letters: int) -> int:
    """Add the other case of each letter."""
    for lower in string.ascii_lowercase:
        both = _set({lower, lower.upper()})
        if letters & both:
            letters |= both
    return letters
