"""The benchmarks' peer: a run of what Spark offers without Tallyweir."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum

from psycopg.conninfo import conninfo_to_dict

from services.bench.bench_world import EVENTS_PER_SECOND_MIN, TOPIC
from services.bench.driver_run import MeasuredBatch
from services.embedded.jars import bench_jars
from services.endpoints import Endpoints, child_environment
from sinks.protocol.errors import FatalError


class PeerQuery(StrEnum):
    """What the peer makes of the page views; see ``spark_jobs.jdbc_peer``."""

    ROWS = "rows"
    WINDOWS = "windows"
    JOINS = "joins"


def run_peer(
    endpoints: Endpoints,
    query: PeerQuery,
    table: str,
    *,
    events: int,
    topics: Sequence[str] = (TOPIC,),
) -> list[MeasuredBatch]:
    """Let the peer read the topics, which hold so many events, to their end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: it failed.
    """
    environment = child_environment(endpoints)
    jars = ",".join(map(str, bench_jars()))
    environment["TALLYWEIR_SPARK_JARS"] += f",{jars}"
    url, user, password = _jdbc(endpoints.home_dsn)
    environment |= {"PEER_JDBC_URL": url, "PGUSER": user, "PGPASSWORD": password}
    peer = subprocess.run(
        [sys.executable, "-m", "spark_jobs.jdbc_peer", ",".join(topics), table, query],
        env=environment,
        capture_output=True,
        timeout=120 + events / EVENTS_PER_SECOND_MIN,
        check=False,
    )
    if peer.returncode:
        raise FatalError(
            "BENCH_INCOMPLETE",
            saw=f"The peer ended with exit code {peer.returncode}: "
            f"{peer.stderr.decode()[-2000:]}",
            why="A part of a run is no measurement.",
            fix="Correct what the peer complains of.",
        )
    return [
        MeasuredBatch(**line)
        for line in map(json.loads, peer.stdout.decode().splitlines())
    ]


def _jdbc(dsn: str) -> tuple[str, str, str]:
    fields = conninfo_to_dict(dsn)
    url = f"jdbc:postgresql://{fields['host']}:{fields['port']}/{fields['dbname']}"
    return url, str(fields["user"]), str(fields["password"])
