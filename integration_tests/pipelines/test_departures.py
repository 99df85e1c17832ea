"""The ready pipeline for flights: every row has what the data set's files say of it."""

from __future__ import annotations

import csv
import datetime as dt
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.shown_rows import show_rows
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.services.local.datasets.flights import read_file
from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: The first rain is in flight 9,356.
_EVENTS = 10_000
_KEPT = (
    "event_id",
    *("airline", "origin_airport", "destination_airport"),
    *("manufacturer", "model", "built"),
    *("weather", "temperature_fahrenheit", "wind_mph", "visibility_miles"),
)
#: One with everything, then ones without airport, plane, year, weather; one in rain.
_SHOWN_IDS = (
    *("UA1545-2013-01-01T10:15Z-EWR", "B6725-2013-01-01T10:45Z-JFK"),
    *("AA301-2013-01-01T11:00Z-LGA", "UA1124-2013-01-01T11:00Z-EWR"),
    *("B61174-2013-01-01T17:00Z-EWR", "AA1925-2013-01-11T20:00Z-LGA"),
)
_SHOWN = (
    "SELECT event_id, airline, destination_airport, manufacturer, built, weather, "
    f"temperature_fahrenheit FROM departures WHERE event_id IN {_SHOWN_IDS}"
)
_SHOWN_HOURS = (
    "SELECT window_start, airline, weather, flights, worst_delay "
    "FROM departures_by_hour WHERE origin = 'EWR' "
    "AND window_start < '2013-01-01 12:00Z'"
)


@pytest.mark.long
def test_each_flight_has_what_the_files_say_of_it(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Airline, airports, plane and the hour's weather, or the default of each."""
    share_fetched(tmp_path)
    variables = {
        KAFKA_VARIABLE: kafka_bootstrap,
        HOME_DSN_VARIABLE: empty_dsn,
        STATE_DIRECTORY_VARIABLE: str(tmp_path),
    }
    commands = (
        f"emit --template departures --events {_EVENTS} --partitions 4",
        "templates run departures --once",
        # Rows that are there are not loaded again.
        "templates run departures --once",
    )
    for command in commands:
        run_command(*command.split(), variables=variables)
    expected = list(_expected())
    with psycopg.connect(
        empty_dsn, autocommit=True, options="-c timezone=UTC"
    ) as connection:
        found = connection.execute(
            f"SELECT {', '.join(_KEPT)} FROM departures".encode()
        ).fetchall()
        assert sorted(found) == sorted(expected)
        hours = connection.execute(
            b"SELECT window_start, origin, airline, flights, cancelled, worst_delay "
            b"FROM departures_by_hour"
        ).fetchall()
        assert {hour[:3]: hour[3:] for hour in hours} == _expected_hours()
        assert len(hours) == len(_expected_hours())
        assert not verify(connection, "departures").failed
        page = (ROOT / "docs" / "departures.md").read_text("utf-8")
        for query in (_SHOWN, _SHOWN_HOURS):
            assert show_rows(connection, query) in page
    WrittenTopic(kafka_bootstrap, "flight-departures").delete()


def _expected() -> Iterator[tuple[Any, ...]]:
    """Look everything up with nothing but the standard library."""
    airlines = {row["carrier"]: row["name"] for row in _rows("airlines.csv")}
    airports = {row["faa"]: row["name"] for row in _rows("airports.csv")}
    planes = {row["tailnum"]: row for row in _rows("planes.csv")}
    hours = {(row["origin"], row["time_hour"]): row for row in _rows("weather.csv")}
    for event_id, flight in _flights():
        plane = planes.get(flight["tailnum"], {})
        hour = hours.get((flight["origin"], flight["time_hour"]), {})
        weather = {"": "unknown", "0": "dry"}.get(hour.get("precip", ""), "wet")
        yield (
            event_id,
            airlines[flight["carrier"]],
            airports.get(flight["origin"], "unknown"),
            airports.get(flight["dest"], "unknown"),
            *(plane.get(name, "unknown") for name in ("manufacturer", "model")),
            _number(plane, "year"),
            weather,
            *(_number(hour, name) for name in ("temp", "wind_speed", "visib")),
        )


def _expected_hours() -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Count flights and cancelled ones, and find the worst delay, of each hour."""
    airlines = {row["carrier"]: row["name"] for row in _rows("airlines.csv")}
    delays = defaultdict(list)
    for _, flight in _flights():
        start = dt.datetime.fromisoformat(flight["time_hour"])
        hour = (start, flight["origin"], airlines[flight["carrier"]])
        delays[hour].append(_number(flight, "dep_delay"))
    return {
        hour: (
            len(found),
            found.count(None),
            max((delay for delay in found if delay is not None), default=None),
        )
        for hour, found in delays.items()
    }


def _flights() -> list[tuple[str, dict[str, str]]]:
    """The flights that were sent, the earliest by schedule, each after its ID."""
    with zipfile.ZipFile(io.BytesIO(read_file("flights.csv.zip"))) as zipped:
        text = zipped.read("flights.csv").decode()
    sortable = []
    for flight in csv.DictReader(io.StringIO(text)):
        moment = f"{flight['time_hour'][:13]}:{int(flight['minute']):02}Z"
        event_id = f"{flight['carrier']}{flight['flight']}-{moment}-{flight['origin']}"
        sortable.append((moment, event_id, flight))
    sortable.sort(key=lambda entry: entry[:2])
    return [(event_id, flight) for _, event_id, flight in sortable[:_EVENTS]]


def _rows(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(read_file(name).decode()))


def _number(row: dict[str, str], column: str) -> float | None:
    cell = row.get(column, "NA")
    return None if cell == "NA" else float(cell)
