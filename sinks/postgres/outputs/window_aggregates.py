"""A window's aggregates, kept as mergeable *partials*.

A task computes the partials of its events, publishing merges them into the state
table, and the result columns are computed from the merged partials.

The partials of a standard deviation are the count, the mean and the sum of squared
distances from the mean. Two parts merge by the distance of their means (Chan, Golub and
LeVeque, 1979). Sums of squares would have to be subtracted from each other, and large
ones cancel.

Postgres raises an error where IEEE arithmetic overflows or underflows. A batch that
holds such values would never be published. So values are bounded before they are
staged, and means that lie closer together than ``SHIFT_MIN`` count as equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from psycopg import sql

from tallyweir.sinks.postgres.server.columns import Column, type_name
from tallyweir.sinks.postgres.server.instants import to_datetime

#: Values further from zero make the deviation NaN: their squares might overflow.
VALUE_MAX = 1e130
#: Values closer to zero count as zero.
VALUE_MIN = 1e-130
#: The least distance of two means. Its square, even divided, stays above the least
#: positive number.
SHIFT_MIN = 1e-140
#: Smaller sums of squared distances count as zero, before they are staged.
SQUARES_MIN = 1e-270


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The columns of one aggregate's moments; all are zero if there is no value."""

    count: str
    mean: str
    squares: str

    @property
    def combined_mean(self) -> sql.Composable:
        """The mean over the staged parts of a group."""
        return sql.SQL("coalesce({}, 0)").format(self._pooled_mean)

    @property
    def combined_squares(self) -> sql.Composable:
        """The squared distances from the mean over the staged parts of a group."""
        return sql.SQL(
            "(SELECT coalesce(sum(part.squares + part.count * power({shift}, 2)), 0) "
            "FROM unnest(array_agg({count}), array_agg({mean}), array_agg({squares})) "
            "AS part (count, mean, squares))"
        ).format(
            shift=_shift(sql.SQL("part.mean"), self._pooled_mean), **self._columns()
        )

    @property
    def merged_mean(self) -> sql.Composable:
        """The stored mean moved towards the one that arrives."""
        return sql.SQL(
            "{mean} = state.{mean} + {shift} * coalesce("
            "EXCLUDED.{count}::double precision "
            "/ nullif(state.{count} + EXCLUDED.{count}, 0), 0)"
        ).format(shift=self._arriving_shift, **self._columns())

    @property
    def merged_squares(self) -> sql.Composable:
        """The stored squares, those that arrive, and what the means' distance adds."""
        return sql.SQL(
            "{squares} = state.{squares} + EXCLUDED.{squares} "
            "+ power({shift}, 2) * coalesce("
            "state.{count}::double precision * EXCLUDED.{count} "
            "/ nullif(state.{count} + EXCLUDED.{count}, 0), 0)"
        ).format(shift=self._arriving_shift, **self._columns())

    @property
    def sample_deviation(self) -> sql.Composable:
        """The deviation as ``stddev_samp``: NULL for fewer than two values."""
        return sql.SQL(
            "CASE WHEN {count} > 1 THEN sqrt({squares} / ({count} - 1)) END"
        ).format(**self._columns())

    @property
    def _pooled_mean(self) -> sql.Composable:
        return sql.SQL(
            "(sum({mean} * {count}) / nullif(sum({count}), 0)::double precision)"
        ).format(**self._columns())

    @property
    def _arriving_shift(self) -> sql.Composable:
        name = sql.Identifier(self.mean)
        return _shift(
            sql.SQL("EXCLUDED.{}").format(name), sql.SQL("state.{}").format(name)
        )

    def _columns(self) -> dict[str, sql.Composable]:
        return {
            "count": sql.Identifier(self.count),
            "mean": sql.Identifier(self.mean),
            "squares": sql.Identifier(self.squares),
        }


def _shift(mean: sql.Composable, other: sql.Composable) -> sql.Composable:
    return sql.SQL(
        "CASE WHEN abs({mean} - {other}) > {least} THEN {mean} - {other} ELSE 0 END"
    ).format(mean=mean, other=other, least=sql.Literal(SHIFT_MIN))


#: Merges that compare values; they compare text by its bytes.
_ORDERED = frozenset({"least", "greatest"})


class AggregateFunction(Enum):
    """Aggregates whose partials merge, however events fell into batches."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    STDDEV = "stddev"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_PERCENTILE = "approx_percentile"


_SKETCHED = frozenset(
    {AggregateFunction.APPROX_COUNT_DISTINCT, AggregateFunction.APPROX_PERCENTILE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """One mergeable part of an aggregate: a count, a sum, a minimum or the like."""

    column: Column
    merge: str
    #: For ``first`` and ``last``: the column of places; the least or greatest wins.
    place: str | None = None
    is_place: bool = False
    #: For a mean and its squared distances: all columns that they merge by.
    moments: Moments | None = None

    @property
    def combined(self) -> sql.Composable:
        """The partials of several tasks, combined within one group."""
        if self.moments is not None:
            return (
                self.moments.combined_mean
                if self.merge == "mean"
                else self.moments.combined_squares
            )
        name: sql.Composable = sql.Identifier(self.column.name)
        if self.merge == "waiting":
            return sql.SQL("coalesce(min({}), %(planned_at)s)").format(name)
        if self.merge == "joined":
            return sql.SQL("(array_remove(array_agg({}), NULL))[1]").format(name)
        if self.place is not None:
            direction = sql.SQL("ASC" if self.merge == "first" else "DESC")
            return sql.SQL("(array_agg({} ORDER BY {} {} NULLS LAST))[1]").format(
                name, _bytewise(self.place), direction
            )
        if self.merge != "add" and self.column.postgres_type == "text":
            name = _bytewise(self.column.name)
        function = {"add": "sum", "least": "min", "greatest": "max"}[self.merge]
        return sql.SQL("{}({})::{}").format(
            sql.SQL(function), name, type_name(self.column.postgres_type)
        )

    @property
    def merged(self) -> sql.Composable:
        """The stored partial merged with the one that arrives."""
        if self.moments is not None:
            return (
                self.moments.merged_mean
                if self.merge == "mean"
                else self.moments.merged_squares
            )
        name = sql.Identifier(self.column.name)
        if self.merge == "add":
            return sql.SQL("{n} = state.{n} + EXCLUDED.{n}").format(n=name)
        if self.place is not None:
            comparison = sql.SQL("<" if self.merge == "first" else ">")
            return sql.SQL(
                "{n} = CASE WHEN state.{p} IS NULL OR EXCLUDED.{p} {c} state.{p} "
                "THEN EXCLUDED.{n} ELSE state.{n} END"
            ).format(n=name, p=sql.Identifier(self.place), c=comparison)
        if self.merge == "joined":
            return sql.SQL("{n} = EXCLUDED.{n}").format(n=name)
        function = sql.SQL("GREATEST" if self.merge == "greatest" else "LEAST")
        return sql.SQL("{n} = {f}(state.{n}, EXCLUDED.{n})").format(n=name, f=function)

    @property
    def is_bytewise(self) -> bool:
        """Whether the database must compare its text by bytes, as tasks do.

        In a language's order the minimum would depend on how events fell into batches.
        """
        return self.merge in _ORDERED and self.column.postgres_type == "text"

    @property
    def definition(self) -> sql.Composable:
        return state_definition(self.column, is_bytewise=self.is_bytewise)


def state_definition(column: Column, *, is_bytewise: bool) -> sql.Composable:
    """Define a column of a state table."""
    if is_bytewise:
        return sql.SQL('{} COLLATE "C"').format(column.definition)
    return column.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate:
    """A result column of a window and the partials behind it."""

    column: Column
    function: AggregateFunction
    #: Position in the output; partials are named by it.
    number: int
    #: Type of the sum, the minimum or the maximum.
    partial_type: str
    #: For a percentile: its fraction.
    fraction: float | None = None
    #: Only windows that begin later know the aggregate; None if all windows do.
    known_after_us: int | None = None

    @property
    def is_sketched(self) -> bool:
        """Whether SQL cannot join its partials."""
        return self.function in _SKETCHED

    @property
    def partials(self) -> tuple[Partial, ...]:
        parts: tuple[Partial, ...]
        match self.function:
            case AggregateFunction.COUNT:
                parts = (self._count,)
            case AggregateFunction.SUM | AggregateFunction.AVG:
                parts = (self._partial("sum", self.partial_type, "add"), self._count)
            case AggregateFunction.MIN:
                parts = (self._partial("min", self.partial_type, "least"),)
            case AggregateFunction.MAX:
                parts = (self._partial("max", self.partial_type, "greatest"),)
            case AggregateFunction.FIRST:
                parts = self._placed("first", "least")
            case AggregateFunction.LAST:
                parts = self._placed("last", "greatest")
            case AggregateFunction.STDDEV:
                parts = (self._count, self._moment("mean"), self._moment("squares"))
            case (
                AggregateFunction.APPROX_COUNT_DISTINCT
                | AggregateFunction.APPROX_PERCENTILE
            ):
                parts = (
                    self._partial("sketch", "bytea", "joined"),
                    self._partial("estimate", self.partial_type, "joined"),
                )
        return parts

    @property
    def final(self) -> sql.Composable:
        """The result column computed from merged partials; NULL without values.

        It is also NULL in a window that had begun when the aggregate was added.
        """
        if self.known_after_us is None:
            return self._known
        return sql.SQL("CASE WHEN window_start > {} THEN {} END").format(
            sql.Literal(to_datetime(self.known_after_us)), self._known
        )

    @property
    def _known(self) -> sql.Composable:
        parts = [sql.Identifier(partial.column.name) for partial in self.partials]
        kind = type_name(self.column.postgres_type)
        match self.function:
            case AggregateFunction.SUM:
                return sql.SQL("CASE WHEN {1} > 0 THEN {0}::{2} END").format(
                    *parts, kind
                )
            case AggregateFunction.AVG:
                return sql.SQL("({0}::{2} / nullif({1}, 0)::{2})").format(*parts, kind)
            case AggregateFunction.STDDEV:
                return self._moments.sample_deviation
            case AggregateFunction.APPROX_COUNT_DISTINCT:
                return sql.SQL("coalesce({}, 0)").format(parts[1])
            case AggregateFunction.APPROX_PERCENTILE:
                return parts[1]
            case _:
                return parts[0]

    @property
    def _count(self) -> Partial:
        return self._partial("count", "bigint", "add")

    @property
    def _moments(self) -> Moments:
        return Moments(
            count=self._name("count"),
            mean=self._name("mean"),
            squares=self._name("squares"),
        )

    def _moment(self, part: str) -> Partial:
        return replace(
            self._partial(part, self.partial_type, part), moments=self._moments
        )

    def _placed(self, part: str, place: str) -> tuple[Partial, Partial]:
        """Return the partials of a value and of its place among the group's events."""
        at = self._partial("place", "text", place)
        value = self._partial(part, self.partial_type, part)
        return (
            replace(value, place=at.column.name),
            replace(at, is_place=True),
        )

    def _partial(self, part: str, postgres_type: str, merge: str) -> Partial:
        column = Column(name=self._name(part), postgres_type=postgres_type)
        return Partial(column=column, merge=merge)

    def _name(self, part: str) -> str:
        # Pipelines may not use this prefix, so the name cannot equal their columns'.
        return f"tallyweir_a{self.number}_{part}"


def _bytewise(column: str) -> sql.Composable:
    return sql.SQL('{} COLLATE "C"').format(sql.Identifier(column))
