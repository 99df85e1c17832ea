"""Outputs with one row for each pair of events that belong together.

Two events are a pair if one is on the left and the other on the right, both have the
same values in the columns ``on``, and their event times are within a bound of each
other. Both sides come from the same source, so their IDs, watermark and offsets are
those of the pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import chain
from typing import Annotated, ClassVar

from pydantic import Discriminator, Tag

from tallyweir.schemas.pipeline.checks.databases import InHome
from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.names import (
    check_distinct,
    check_event_column,
    check_output_column,
    check_output_table,
    check_selected_column,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Path,
    Problem,
    StandIn,
    empty_value,
    raise_if_any,
)
from tallyweir.schemas.pipeline.document.file_keys import (
    Condition,
    Duration,
    Given,
    Keys,
    Pairs,
    Text,
    Texts,
    unnamed,
    word,
)
from tallyweir.schemas.pipeline.document.yaml_tree import YamlMap
from tallyweir.schemas.pipeline.expressions.expressions import check_condition
from tallyweir.schemas.pipeline.outputs.pipeline_output import (
    KnownColumns,
    Output,
    check_known,
)
from tallyweir.sinks.protocol.column_names import stored_name


class Unmatched(StrEnum):
    """The sides whose unmatched events get a row of their own."""

    NONE = "none"
    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """How far apart in event time a pair may be; both ends are included.

    Attributes:
        before: How much earlier than the left event the right one may be.
        after: How much later than the left event the right one may be.
    """

    before: timedelta = timedelta()
    after: timedelta = timedelta()

    def __post_init__(self) -> None:
        raise_if_any("Within", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_duration(self.before, ("before",))
        yield from check_duration(self.after, ("after",))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSide:
    """One side of a join.

    Attributes:
        where: Spark SQL that is true of its events. An event on both sides is never
            paired with itself.
        select: Column of the row to column of the event.
    """

    where: str
    select: Mapping[str, str]

    def __post_init__(self) -> None:
        raise_if_any("JoinSide", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from (one.under("where") for one in check_condition(self.where))
        if not self.select:
            yield empty_value(("select",))
        for column, of_event in self.select.items():
            yield from check_output_column(column, ("select", column))
            yield from check_selected_column(of_event, ("select", column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(InHome, Output):
    """One row for each pair, and with ``unmatched`` for each event that has none.

    Attributes:
        table: Result table in the home; made when missing.
        on: Columns in which both events have the same values. Null equals nothing.
        within: How far apart in event time they may be; a duration counts both ways.
        left: The left side.
        right: The right side.
        unmatched: Sides whose events get a row with nulls after the watermark has
            passed every possible partner.
    """

    kind: ClassVar[str] = "join"
    reads_event_time: ClassVar[bool] = True
    unrepeatable: ClassVar[tuple[str, str]] = (
        "joins events",
        "A batch that runs again would pair its events again.",
    )

    table: str
    on: tuple[str, ...]
    within: timedelta | Within
    left: JoinSide
    right: JoinSide
    unmatched: Unmatched = Unmatched.NONE

    def __post_init__(self) -> None:
        raise_if_any("Join", self._find_problems())

    @property
    def bounds(self) -> Within:
        """How far apart a pair may be, as ``Within``."""
        if isinstance(self.within, Within):
            return self.within
        return Within(before=self.within, after=self.within)

    @property
    def both(self) -> dict[str, JoinSide]:
        """Both sides, by what users call them."""
        return {"left": self.left, "right": self.right}

    @property
    def sides(self) -> dict[str, str]:
        return {name: side.where for name, side in self.both.items()}

    @property
    def conditions(self) -> dict[Path, str]:
        return {(name, "where"): where for name, where in self.sides.items()}

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.on

    @property
    def named_columns(self) -> tuple[str, ...]:
        sides = (self.left.select.values(), self.right.select.values())
        return (*self.on, *chain(*sides))

    @property
    def own_columns(self) -> tuple[str, ...]:
        return (*self.left.select, *self.right.select)

    @property
    def where(self) -> str:
        """Condition of events that the output takes, on either side."""
        return f"({self.left.where}) OR ({self.right.where})"

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        yield from known.check_all(self.on, "on")
        for name, side in self.both.items():
            for column, of_event in side.select.items():
                at = (name, "select", column)
                yield from check_known(of_event, known.usable, at)

    def touched_columns(
        self, touched: Collection[str], event_time: str
    ) -> Iterator[str]:
        del event_time
        for side in self.both.values():
            for column, of_event in side.select.items():
                if of_event in touched:
                    yield column

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_output_table(self.table, ("table",))
        if not self.on:
            yield empty_value(("on",))
        for index, column in enumerate(self.on):
            yield from check_event_column(column, ("on", index))
        columns = [*map(stored_name, self.on), *self.left.select, *self.right.select]
        yield from check_distinct(columns, "columns", ("table",))
        if not isinstance(self.within, Within):
            yield from check_duration(self.within, ("within",))


class WithinKeys(Keys[Within]):
    """The keys of ``within``, where it is no duration."""

    part = Within

    before: Duration = timedelta()
    after: Duration = timedelta()


class JoinSideKeys(Keys[JoinSide]):
    """The keys of ``left`` and ``right``."""

    part = JoinSide
    stand_ins: ClassVar[Mapping[str, object]] = {
        "where": "true",
        "select": {StandIn("unnamed"): StandIn("unnamed")},
    }

    where: Condition
    select: Pairs


def _kind_of_within(value: Given) -> str:
    return "bounds" if isinstance(value, YamlMap) else "duration"


class JoinKeys(Keys[Join]):
    """The keys of ``join``."""

    part = Join
    stand_ins: ClassVar[Mapping[str, object]] = {
        "table": unnamed,
        "on": (StandIn("unnamed"),),
        "within": timedelta(hours=1),
        "left": JoinSideKeys.unknown(),
        "right": JoinSideKeys.unknown(),
    }

    table: Text
    on: Texts
    within: Annotated[
        Annotated[Duration, Tag("duration")] | Annotated[WithinKeys, Tag("bounds")],
        Discriminator(_kind_of_within),
    ]
    left: JoinSideKeys
    right: JoinSideKeys
    unmatched: Annotated[Unmatched, word(Unmatched)] = Unmatched.NONE
