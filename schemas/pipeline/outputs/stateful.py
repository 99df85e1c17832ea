"""Outputs whose rows come from a Python function that keeps state for each key.

The function is called once for each key with events in a batch, or a due timer::

    @stateful(
        table="machine_totals",
        key=["machine"],
        columns={"total": "bigint"},
        state={"total": ValueState(0)},
    )
    def totals(key, events, state, timers, watermark):
        state["total"].value += sum(events["amount"].to_pylist())
        yield {"total": state["total"].value}

``docs/keyed-state.md`` says what each argument is and when a change counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

from tallyweir.schemas.pipeline.checks.databases import InHome
from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.names import (
    check_distinct,
    check_output_column,
    check_output_table,
    check_stored_column,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Path,
    Problem,
    empty_value,
    raise_if_any,
    suggest,
)
from tallyweir.schemas.pipeline.expressions.expressions import check_condition
from tallyweir.schemas.pipeline.outputs.known_columns import KnownColumns
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output

#: A JSON value.
Json: TypeAlias = Any
#: Called with the key, its events, its state, its timers and the watermark.
StatefulFunction: TypeAlias = Callable[
    [tuple[Any, ...], Any, Any, Any, Any], Iterable[Mapping[str, Any]] | None
]
#: Called with the name of a state, a stored value, and the version of that value.
Migration: TypeAlias = Callable[[str, Any, int], Any]

#: Types of result columns: types of Postgres, and Spark's names for some of them.
RESULT_TYPES: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("bigint", "boolean", "bytea", "date", "double precision", "integer"),
            *("jsonb", "numeric", "real", "smallint", "text"),
            *("timestamp with time zone", "timestamp without time zone"),
        )
    },
    "binary": "bytea",
    "double": "double precision",
    "float": "real",
    "int": "integer",
    "long": "bigint",
    "short": "smallint",
    "string": "text",
    "timestamp": "timestamp with time zone",
    "timestamptz": "timestamp with time zone",
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class ValueState:
    """One value, which is ``default`` until it is set."""

    default: Any = None


@dataclass(frozen=True, slots=True)
class ListState:
    """A list of values in the order of appending."""


@dataclass(frozen=True, slots=True)
class MapState:
    """A map of values by text keys."""


StateKind: TypeAlias = ValueState | ListState | MapState


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateful(InHome, Output):
    """One row for each that a function returns; made by ``stateful``.

    Attributes:
        table: Result table in the home; made when missing.
        key: Columns of the event whose values make the keys.
        columns: Columns that the function returns, with their types.
        function: The function to call.
        state: State that it keeps, by name.
        select: Columns of each event that it gets; None for all.
        where: As in ``Append``.
        ttl: Event time after which a value or entry expires if it is not written; None
            for never.
        version: Version of the state; raise it together with ``migrate``.
        migrate: Turns a stored value of an older version into one of this version.
    """

    has_code: ClassVar[bool] = True
    unrepeatable: ClassVar[tuple[str, str]] = (
        "keeps state for keys",
        "A batch that runs again would change the state again.",
    )

    table: str
    key: tuple[str, ...]
    columns: Mapping[str, str]
    function: StatefulFunction = field(compare=False)
    state: Mapping[str, StateKind] = field(default_factory=dict)
    select: tuple[str, ...] | None = None
    where: str | None = None
    ttl: timedelta | None = None
    version: int = 1
    migrate: Migration | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        raise_if_any("Stateful", self._find_problems())

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.key

    @property
    def own_columns(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        yield from known.check_all(self.key, "key")
        yield from known.check_all(self.select, "select")

    def touched_columns(
        self, touched: Collection[str], event_time: str
    ) -> Iterator[str]:
        """Yield all of them: nobody sees what its function reads."""
        del touched, event_time
        yield from self.columns

    def _find_problems(self) -> Iterator[Problem]:
        yield from (one.under("where") for one in check_condition(self.where))
        yield from check_output_table(self.table, ("table",))
        if not self.key:
            yield empty_value(("key",))
        if not self.columns:
            yield empty_value(("columns",))
        for index, column in enumerate(self.key):
            yield from check_output_column(column, ("key", index))
        for column, kind in self.columns.items():
            yield from check_output_column(column, ("columns", column))
            yield from _check_type(kind, ("columns", column))
        yield from check_distinct([*self.key, *self.columns], "columns", ("columns",))
        for index, column in enumerate(self.select or ()):
            yield from check_stored_column(column, ("select", index))
        for name in self.state:
            if not _NAME.fullmatch(name):
                yield _bad_state(f"A state is called {name!r}.", ("state", name))
        if self.ttl is not None:
            yield from check_duration(self.ttl, ("ttl",), zero=False)
        if self.version < 1:
            yield _bad_state(f"version is {self.version}.", ("version",))


def stateful(  # noqa: PLR0913 - each is a part of the output
    *,
    table: str,
    key: Sequence[str],
    columns: Mapping[str, str],
    state: Mapping[str, StateKind] | None = None,
    select: Sequence[str] | None = None,
    where: str | None = None,
    ttl: timedelta | None = None,
    version: int = 1,
    migrate: Migration | None = None,
) -> Callable[[StatefulFunction], Stateful]:
    """Make a function an output; see ``Stateful`` for the arguments.

    Raises:
        PipelineError: An argument cannot be used.
    """

    def make(function: StatefulFunction) -> Stateful:
        return Stateful(
            table=table,
            key=tuple(key),
            columns=dict(columns),
            function=function,
            state=dict(state or {}),
            select=None if select is None else tuple(select),
            where=where,
            ttl=ttl,
            version=version,
            migrate=migrate,
        )

    return make


def _check_type(kind: str, at: Path) -> Iterator[Problem]:
    if kind not in RESULT_TYPES:
        yield Problem(
            code="PIPELINE_COLUMN_TYPE",
            at=at,
            saw=f"The column's type is {kind!r}.",
            why="Result columns can have only the types that Tallyweir supports.",
            fix=suggest(kind, RESULT_TYPES),
        )


def _bad_state(saw: str, at: Path) -> Problem:
    return Problem(
        code="PIPELINE_VALUE",
        at=at,
        saw=saw,
        why="States are named like columns, and versions start at 1.",
        fix="Correct it.",
    )
