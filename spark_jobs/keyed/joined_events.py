"""Joins as keyed state: events wait for partners until the watermark excludes any.

A new event is compared with the events of the other side that wait under its key, and
then waits itself as long as a partner may come that is not late. So the pairs of events
that are in time depend neither on their order nor on the batches. A late event is
paired with the events that still wait. Each pair marks both of its events, and an event
that leaves without a mark was in no pair: an event is never both in a pair and in a row
of its own.

The bounds are those of an interval join in Apache Flink: the right event is at most
``before`` earlier and at most ``after`` later than the left one, both ends included.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import singledispatch
from typing import Any, NamedTuple

from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.schemas.pipeline.outputs.join import Join, Unmatched
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.outputs.stateful import Json, Stateful, ValueState
from tallyweir.sinks.postgres.server.instants import to_datetime, to_microseconds
from tallyweir.sinks.protocol.column_names import stored_name
from tallyweir.spark_jobs.keyed.key_task import JsonText
from tallyweir.spark_jobs.source.event_columns import side_column

_WAITING = "waiting"
_EXPIRY = "no partner any more"
_PLACE = ("topic", "partition", "offset")
_OTHER = {"left": "right", "right": "left"}
_WITH_OWN_ROWS = {
    Unmatched.NONE: frozenset[str](),
    Unmatched.LEFT: frozenset({"left"}),
    Unmatched.RIGHT: frozenset({"right"}),
    Unmatched.BOTH: frozenset({"left", "right"}),
}


class _Form(NamedTuple):
    """How Arrow values of a type are kept as JSON, and shown again."""

    keep: Callable[[Any], Json]
    show: Callable[[Json], Any]


def _keep_float(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


_FORMS: Mapping[str, _Form] = {
    "bytea": _Form(lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "date": _Form(date.isoformat, date.fromisoformat),
    "double precision": _Form(_keep_float, float),
    "jsonb": _Form(str, JsonText),
    "numeric": _Form(str, Decimal),
    "real": _Form(_keep_float, float),
    "timestamp with time zone": _Form(datetime.isoformat, datetime.fromisoformat),
    "timestamp without time zone": _Form(datetime.isoformat, datetime.fromisoformat),
}


@singledispatch
def as_stateful(
    output: Output,
    number: int,
    event_time: str,
    types: Mapping[str, str],
) -> Stateful:
    """Return an output with the function that makes its rows; kinds register how.

    Args:
        output: The output; one that is stateful already stays unchanged.
        number: Number of the output in its pipeline.
        event_time: Event-time column of the pipeline.
        types: Postgres types by name, at least of the event columns that it selects.
    """
    del event_time, types
    raise TypeError(f"output {number} has no function: {output!r}")


@as_stateful.register
def _(
    output: Stateful, number: int, event_time: str, types: Mapping[str, str]
) -> Stateful:
    del number, event_time, types
    return output


@as_stateful.register
def _(output: Join, number: int, event_time: str, types: Mapping[str, str]) -> Stateful:
    sides = {name: side_column(number, name) for name in output.sides}
    selected = [
        stored_name(of) for side in output.both.values() for of in side.select.values()
    ]
    # A left event waits for those after it, a right one for those before which it is.
    waits_us = {
        "left": in_microseconds(output.bounds.after),
        "right": in_microseconds(output.bounds.before),
    }
    return Stateful(
        table=output.table,
        key=output.on,
        columns={
            column: types[stored_name(of_event)]
            for side in output.both.values()
            for column, of_event in side.select.items()
        },
        function=_Pairing(
            output=output,
            event_time=event_time,
            sides=sides,
            types=types,
            waits_us=waits_us,
        ),
        state={_WAITING: ValueState()},
        select=tuple(dict.fromkeys([event_time, *sides.values(), *selected])),
    )


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """An event that may still find partners.

    Attributes:
        at_us: Its event time in microseconds since 1970.
        place: Its identity: topic, partition and offset.
        row: Its values for result rows, as kept in JSON.
        is_matched: It is in a pair.
    """

    at_us: int
    place: list[Json]
    row: dict[str, Json]
    is_matched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairing:
    """The stateful function of a join.

    Attributes:
        output: The join.
        event_time: Event-time column of the pipeline.
        sides: The columns that say on which sides an event is.
        types: Postgres types of event columns.
        waits_us: How long the events of a side wait for partners.
    """

    output: Join
    event_time: str
    sides: Mapping[str, str]
    types: Mapping[str, str]
    waits_us: Mapping[str, int]

    def __call__(
        self,
        key: tuple[Any, ...],
        events: Json,
        state: Json,
        timers: Json,
        watermark: datetime | None,
    ) -> Iterator[Mapping[str, Any]]:
        waiting = _read(state[_WAITING].value)
        # Null equals nothing, so an event with a null key has no partner.
        is_hopeless = None in key
        for event in events.to_pylist():
            for name, column in self.sides.items():
                if event[column]:
                    newcomer = self._waiting(name, event)
                    if not is_hopeless:
                        yield from self._pairs(name, newcomer, waiting[_OTHER[name]])
                    waiting[name].append(newcomer)
        now_us = math.inf if is_hopeless else to_microseconds(watermark)
        if now_us is not None:
            yield from self._let_go(waiting, now_us)
        leaves_us = [
            min(one.at_us for one in held) + self.waits_us[name]
            for name, held in waiting.items()
            if held
        ]
        if leaves_us:
            state[_WAITING].value = _as_json(waiting)
            # A partner at the very end of the bound would still be in time.
            timers.set_event_time(_EXPIRY, to_datetime(min(leaves_us) + 1))
        else:
            state[_WAITING].clear()
            timers.cancel(_EXPIRY)

    def _pairs(
        self, name: str, newcomer: _Waiting, others: list[_Waiting]
    ) -> Iterator[dict[str, Any]]:
        earliest, latest = -self.waits_us["right"], self.waits_us["left"]
        for other in others:
            left, right = (newcomer, other) if name == "left" else (other, newcomer)
            is_near = earliest <= right.at_us - left.at_us <= latest
            if is_near and left.place != right.place:
                left.is_matched = right.is_matched = True
                yield {**self._shown("left", left), **self._shown("right", right)}

    def _let_go(
        self, waiting: dict[str, list[_Waiting]], now_us: float
    ) -> Iterator[dict[str, Any]]:
        """Keep events whose partners may still be in time; the others leave."""
        with_own_rows = _WITH_OWN_ROWS[self.output.unmatched]
        for name, held in waiting.items():
            # No partner of an earlier event can still be in time.
            earliest_us = now_us - self.waits_us[name]
            if name in with_own_rows:
                for one in held:
                    if one.at_us < earliest_us and not one.is_matched:
                        yield self._shown(name, one)
            held[:] = [one for one in held if one.at_us >= earliest_us]

    def _waiting(self, name: str, event: Mapping[str, Any]) -> _Waiting:
        return _Waiting(
            at_us=to_microseconds(event[self.event_time]),
            place=[event[f"kafka_{part}"] for part in _PLACE],
            row={
                column: self._kept(event[of_event], self.types[of_event])
                for column, of_event in self._selected(name)
            },
        )

    def _selected(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the columns of a side, each with the event's column."""
        for column, of_event in self.output.both[name].select.items():
            yield column, stored_name(of_event)

    def _kept(self, value: Any, kind: str) -> Json:  # noqa: ANN401 - of any column
        form = _FORMS.get(kind)
        return value if form is None or value is None else form.keep(value)

    def _shown(self, name: str, one: _Waiting) -> dict[str, Any]:
        """Return the event's part of a row; null for values that were not kept."""
        part = {}
        for column, of_event in self._selected(name):
            value = one.row.get(column)
            form = _FORMS.get(self.types[of_event])
            shown = value if form is None or value is None else form.show(value)
            part[column] = shown
        return part


def _read(stored: Json) -> dict[str, list[_Waiting]]:
    return {
        name: [
            _Waiting(at_us=at_us, place=place, row=row, is_matched=is_matched)
            for at_us, place, row, is_matched in (stored or {}).get(name, ())
        ]
        for name in _OTHER
    }


def _as_json(waiting: Mapping[str, list[_Waiting]]) -> Json:
    return {
        name: [[one.at_us, one.place, one.row, one.is_matched] for one in held]
        for name, held in waiting.items()
    }
