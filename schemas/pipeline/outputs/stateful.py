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

``each_session`` is built on it, and calls a function once for each closed session of a
key: it keeps a list of the events of open sessions, and one timer at the end of the
first of them. A session is a series of events, each of which follows the one before
within the gap. It closes when the watermark has passed its last event by the gap. The
function then gets its events, ordered by time. An event that comes after its session
was handed over begins another session, which closes at once unless it joins an open
one: no event is ever handed over twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

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
    empty_value,
    raise_if_any,
    suggest,
)
from tallyweir.schemas.pipeline.expressions.expressions import check_condition
from tallyweir.schemas.pipeline.outputs.pipeline_output import KnownColumns, Output
from tallyweir.sinks.protocol.column_names import stored_name

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

_STATE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


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

    kind: ClassVar[str] = "stateful"
    has_code: ClassVar[bool] = True
    reads_event_time: ClassVar[bool] = True
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
    def named_columns(self) -> tuple[str, ...]:
        return (*self.key, *(self.select or ()))

    @property
    def own_columns(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        yield from known.check_all(self.key, "key")
        yield from known.check_all(self.select, "select")

    def touched_columns(
        self, touched: Collection[str], event_time: str
    ) -> Iterator[str]:
        """Yield all of them: the file does not say what its function reads."""
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
            yield from check_event_column(column, ("key", index))
        for column, kind in self.columns.items():
            yield from check_output_column(column, ("columns", column))
            yield from _check_type(kind, ("columns", column))
        columns = [*map(stored_name, self.key), *self.columns]
        yield from check_distinct(columns, "columns", ("columns",))
        for index, column in enumerate(self.select or ()):
            yield from check_selected_column(column, ("select", index))
        for name in self.state:
            if not _STATE_NAME.fullmatch(name):
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


#: Called with the key and the session's events as dictionaries, by time.
SessionFunction: TypeAlias = Callable[
    [tuple[Any, ...], list[dict[str, Any]]], Iterable[Mapping[str, Any]] | None
]

_OPEN_SESSIONS = "open"
_SESSION_END = "session end"


def each_session(  # noqa: PLR0913 - each is a part of the output
    *,
    table: str,
    key: Sequence[str],
    columns: Mapping[str, str],
    event_time: str,
    gap: timedelta,
    select: Sequence[str] = (),
    where: str | None = None,
) -> Callable[[SessionFunction], Stateful]:
    """Make a function an output that is called for each closed session.

    Args:
        table: As in ``Stateful``.
        key: As in ``Stateful``.
        columns: As in ``Stateful``.
        event_time: Event-time column of the pipeline.
        gap: Time without events that ends a session.
        select: Columns of each event that the function gets besides its time; their
            values must be JSON values.
        where: As in ``Stateful``; only these events belong to sessions.

    Raises:
        PipelineError: An argument cannot be used.
    """

    def make(function: SessionFunction) -> Stateful:
        return stateful(
            table=table,
            key=key,
            columns=columns,
            state={_OPEN_SESSIONS: ListState()},
            select=[event_time, *(name for name in select if name != event_time)],
            where=where,
        )(_Sessions(function=function, event_time=event_time, gap=gap))

    return make


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sessions:
    """The stateful function that calls a session function."""

    function: SessionFunction
    event_time: str
    gap: timedelta

    def __call__(
        self,
        key: tuple[Any, ...],
        events: Json,
        state: Json,
        timers: Json,
        watermark: datetime | None,
    ) -> Iterator[Mapping[str, Any]]:
        waiting = state[_OPEN_SESSIONS]
        fresh = [self._stored(event) for event in events.to_pylist()]
        still_open = []
        closed = False
        for session in self._split([*waiting.read(), *fresh]):
            if watermark is None or self._end(session) > watermark:
                still_open.append(session)
            else:
                closed = True
                yield from self.function(key, [self._shown(e) for e in session]) or ()
        if closed:
            waiting.replace([event for session in still_open for event in session])
        else:
            for event in fresh:
                waiting.append(event)
        if still_open:
            timers.set_event_time(_SESSION_END, min(map(self._end, still_open)))
        else:
            timers.cancel(_SESSION_END)

    def _split(self, events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the sessions among some events, by time.

        As in session windows, an event exactly one gap later begins another session.
        """
        session: list[dict[str, Any]] = []
        for event in sorted(events, key=self._time):
            if session and self._time(event) >= self._end(session):
                yield session
                session = []
            session.append(event)
        if session:
            yield session

    def _time(self, event: dict[str, Any]) -> datetime:
        return datetime.fromisoformat(event[self.event_time])

    def _end(self, session: list[dict[str, Any]]) -> datetime:
        return self._time(session[-1]) + self.gap

    def _stored(self, event: dict[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in event.items() if not k.startswith("kafka_")}
        return {**kept, self.event_time: event[self.event_time].isoformat()}

    def _shown(self, event: dict[str, Any]) -> dict[str, Any]:
        return {**event, self.event_time: self._time(event)}
