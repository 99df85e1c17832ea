"""Machines: their speed and temperature, and an alarm when one is odd or silent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from tallyweir import Append, Pipeline, Source, ValueState, stateful

PIPELINE = "factory"
TOPIC = "machine-readings"
READINGS = "machine_readings"
TABLE = "machine_reports"
#: A machine that says nothing for so long raises an alarm.
SILENCE_SECONDS = 60
#: So many deviations from its mean are odd; judged once there are some readings.
DEVIATIONS = 3
READINGS_MIN = 30
#: How far behind the newest reading others are expected.
DELAY_SECONDS = 5

_SILENCE = timedelta(seconds=SILENCE_SECONDS)


@stateful(
    table=TABLE,
    key=["machine"],
    columns={
        "what": "text",
        "at": "timestamptz",
        "revolutions_per_minute": "double precision",
        "temperature": "double precision",
        "mean_temperature": "double precision",
        "deviation": "double precision",
    },
    select=["read_at", "revolutions", "temperature"],
    # How many readings, their mean, and the sum of their squared distances from it:
    # Welford's method, which loses no digits. The newest reading's time and counter,
    # and whether the silence after it has been reported.
    state={"run": ValueState([0, 0.0, 0.0, None, 0, False])},
)
def machine_reports(
    _key: tuple[Any, ...], events: Any, state: Any, timers: Any, _watermark: Any
) -> Iterator[dict[str, Any]]:
    """Report each reading, and odd ones and silences beside."""
    count, mean, squares, newest, counter, reported = state["run"].value
    for reading in events.to_pylist():
        at, temperature = reading["read_at"], reading["temperature"]
        passed = None if newest is None else at - datetime.fromisoformat(newest)
        if passed is not None and passed > _SILENCE and not reported:
            yield _silence_after(newest)
        deviation = math.sqrt(squares / count) if count else 0.0
        report = {
            "what": "reading",
            "at": at,
            "revolutions_per_minute": _per_minute(
                reading["revolutions"] - counter, passed
            ),
            "temperature": temperature,
            "mean_temperature": mean if count else None,
            "deviation": deviation,
        }
        yield report
        if count >= READINGS_MIN and abs(temperature - mean) > DEVIATIONS * deviation:
            yield {**report, "what": "odd temperature"}
        count += 1
        step = temperature - mean
        mean += step / count
        squares += step * (temperature - mean)
        if passed is None or passed > timedelta():
            newest, counter, reported = at.isoformat(), reading["revolutions"], False
            timers.set_event_time("silent", at + _SILENCE)
    if timers.fired:
        yield _silence_after(newest)
        reported = True
    state["run"].value = [count, mean, squares, newest, counter, reported]


def _per_minute(revolutions: int, passed: timedelta | None) -> float | None:
    if passed is None or passed <= timedelta():
        return None
    return revolutions * 60 / passed.total_seconds()


def _silence_after(newest: str) -> dict[str, Any]:
    return {"what": "silence", "at": datetime.fromisoformat(newest) + _SILENCE}


pipeline = Pipeline(
    name=PIPELINE,
    source=Source(
        topic=TOPIC,
        schema="machine_reading.v1",
        event_id="event_id",
        event_time="read_at",
        watermark_delay=timedelta(seconds=DELAY_SECONDS),
    ),
    outputs=(Append(table=READINGS), machine_reports),
)
