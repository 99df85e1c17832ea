"""Flights are read from the archive in scheduled order, with lasting IDs."""

from __future__ import annotations

import datetime as dt
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tallyweir.schemas.codec import encode_many
from tallyweir.schemas.contract import load_contract
from tallyweir.services.local.datasets.flights import (
    FLIGHTS_TOTAL,
    fetch_archive,
    read_airlines,
    read_flights,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,"
    "arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,"
    "time_hour"
)
LATER = (
    "2013,7,1,NA,1259,NA,NA,1500,NA,9E,7,NA,JFK,ORD,NA,740,12,59,2013-07-01T16:00:00Z"
)
FIRST = (
    "2013,1,1,517,515,2,830,819,-11,UA,1545,N14228,EWR,IAH,227,1400,5,5,"
    "2013-01-01T10:00:00Z"
)


def make_archive(folder: Path, flights: str, airlines: str = "carrier,name\n") -> Path:
    """A package archive as the registry has it, with our tables."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as inner:
        inner.writestr("flights.csv", flights)
    path = folder / "package.tar.gz"
    with tarfile.open(path, "w:gz") as package:
        for name, content in (
            ("flights.csv.zip", zipped.getvalue()),
            ("airlines.csv", airlines.encode()),
        ):
            member = tarfile.TarInfo(f"package-1/package/data/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return path


def test_flights_come_in_scheduled_order_with_their_instants(tmp_path: Path) -> None:
    """The minute is added to the hour's instant; missing cells are null."""
    archive = make_archive(tmp_path, f"{HEADER}\n{LATER}\n{FIRST}\n")
    assert list(read_flights(archive=archive)) == [
        {
            "event_id": "UA1545-2013-01-01T10:05Z-EWR",
            "scheduled_at": dt.datetime(2013, 1, 1, 10, 5, tzinfo=dt.UTC),
            "carrier": "UA",
            "flight": 1545,
            "tailnum": "N14228",
            "origin": "EWR",
            "destination": "IAH",
            "distance_miles": 1400,
            "dep_delay_minutes": 2,
            "arr_delay_minutes": -11,
            "air_time_minutes": 227,
        },
        {
            "event_id": "9E7-2013-07-01T16:59Z-JFK",
            "scheduled_at": dt.datetime(2013, 7, 1, 16, 59, tzinfo=dt.UTC),
            "carrier": "9E",
            "flight": 7,
            "tailnum": None,
            "origin": "JFK",
            "destination": "ORD",
            "distance_miles": 740,
            "dep_delay_minutes": None,
            "arr_delay_minutes": None,
            "air_time_minutes": None,
        },
    ]


def test_a_limit_takes_the_earliest(tmp_path: Path) -> None:
    """The limit counts in scheduled order, not in the file's."""
    archive = make_archive(tmp_path, f"{HEADER}\n{LATER}\n{FIRST}\n")
    (flight,) = read_flights(1, archive=archive)
    assert flight["carrier"] == "UA"


def test_airlines_come_by_code(tmp_path: Path) -> None:
    """Codes and names, as the enrichment needs them."""
    archive = make_archive(
        tmp_path, f"{HEADER}\n", "carrier,name\nUA,United\n9E,Endeavor\n"
    )
    assert read_airlines(archive=archive) == [("9E", "Endeavor"), ("UA", "United")]


def test_an_archive_without_the_table_is_an_error(tmp_path: Path) -> None:
    """The error names the file to delete."""
    path = tmp_path / "package.tar.gz"
    tarfile.open(path, "w:gz").close()
    with pytest.raises(ConfigurationError, match="FLIGHTS_MALFORMED"):
        list(read_flights(archive=path))


@pytest.mark.slow
def test_all_real_flights_fit_the_contract_and_have_distinct_ids() -> None:
    """The ID is unique over the whole year, and every record encodes."""
    archive = fetch_archive()
    flights = list(read_flights(archive=archive))
    assert len({flight["event_id"] for flight in flights}) == FLIGHTS_TOTAL
    moments = [str(flight["scheduled_at"]) for flight in flights]
    assert moments == sorted(moments)
    cancelled = sum(flight["dep_delay_minutes"] is None for flight in flights)
    assert cancelled == 8_255
    contract = load_contract("flight_departure.v1")
    assert sum(1 for _ in encode_many(contract, flights)) == FLIGHTS_TOTAL
    carriers = {flight["carrier"] for flight in flights}
    assert carriers == {code for code, _ in read_airlines(archive=archive)}
