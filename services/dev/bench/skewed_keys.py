"""What a hot key costs windows: `python -m services.dev.bench.skewed_keys [EVENTS]`.

The work is the product's own, run by ``spark_jobs.bench.skewed_windows`` without
Spark and Kafka, which do nothing by key. Prints one line of JSON for each kind of
window.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from psycopg import sql

from services.dev.bench.bench_program import run_program
from services.dev.bench.bench_world import bench_postgres
from services.dev.bench.rates import wrong_result
from services.process.endpoints import Endpoints, child_environment
from sinks.postgres.server.connection import connect

#: Of a batch.
_EVENTS = 250_000
_TIMEOUT_S = 1_800.0
_NO_BROKER = "localhost:1"


def main() -> None:
    """Measure in a database of its own, and print what was found."""
    events = int(sys.argv[1]) if sys.argv[1:] else _EVENTS
    with bench_postgres() as dsn:
        for line in measure_skewed_keys(dsn, events=events):
            sys.stdout.write(json.dumps(line) + "\n")


def measure_skewed_keys(dsn: str, *, events: int) -> list[dict[str, Any]]:
    """Measure each kind of window with even keys and with a hot one.

    Raises:
        FatalError: The work failed, or its windows do not count each event once.
    """
    lines = run_program(
        [sys.executable, "-m", "spark_jobs.bench.skewed_windows", str(events)],
        child_environment(Endpoints(kafka_bootstrap=_NO_BROKER, home_dsn=dsn)),
        timeout_s=_TIMEOUT_S,
    )
    measured = [json.loads(line) for line in lines]
    for one in measured:
        for keys in ("even", "hot"):
            _check_count(dsn, one[keys], one["counted"])
    return measured


def _check_count(dsn: str, measured: Mapping[str, Any], events: int) -> None:
    table = measured["table"]
    with connect(dsn, application_name="bench") as connection:
        ((counted,),) = connection.execute(
            sql.SQL("SELECT sum(events) FROM {}").format(sql.Identifier(table))
        ).fetchall()
    if counted != events:
        raise wrong_result(f"{table} counts {counted} of {events} events.")


if __name__ == "__main__":
    main()
