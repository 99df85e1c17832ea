"""Calls a user's function once for each closed session of a key.

It is built on keyed state: a list of the events of open sessions, and one timer at the
end of the first of them. A session is a series of events, each of which follows the one
before within the gap. It closes when the watermark has passed its last event by the
gap. The function then gets its events, ordered by time.

An event that comes after its session was handed over begins another session, which
closes at once unless it joins an open one: no event is ever handed over twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from tallyweir.schemas.pipeline.outputs.stateful import (
    Json,
    ListState,
    Stateful,
    stateful,
)

#: Called with the key and the session's events as dictionaries, by time.
SessionFunction: TypeAlias = Callable[
    [tuple[Any, ...], list[dict[str, Any]]], Iterable[Mapping[str, Any]] | None
]

_OPEN = "open"
_END = "session end"


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
            state={_OPEN: ListState()},
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
        waiting = state[_OPEN]
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
            timers.set_event_time(_END, min(map(self._end, still_open)))
        else:
            timers.cancel(_END)

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
