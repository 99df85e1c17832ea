"""The peer that runs on Spark without Tallyweir."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum

from tallyweir.services.dev.bench.peers.peer_process import (
    jdbc_url,
    login_environment,
    run_peer_process,
)
from tallyweir.services.dev.bench.world.bench_world import TOPIC
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch
from tallyweir.services.local.embedded.jars import bench_jars
from tallyweir.services.process.endpoints import Endpoints, child_environment


class PeerQuery(StrEnum):
    """The peer's queries on the page views; see ``spark_jobs.bench.jdbc_peer``."""

    ROWS = "rows"
    WINDOWS = "windows"
    JOINS = "joins"


def run_spark_peer(
    endpoints: Endpoints,
    query: PeerQuery,
    table: str,
    *,
    events: int,
    topics: Sequence[str] = (TOPIC,),
) -> list[MeasuredBatch]:
    """Let Spark read the topics, which hold ``events``, to their end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Spark failed.
    """
    environment = child_environment(endpoints)
    jars = ",".join(map(str, bench_jars()))
    environment["TALLYWEIR_SPARK_JARS"] += f",{jars}"
    environment["PEER_JDBC_URL"] = jdbc_url(endpoints.home_dsn)
    return run_peer_process(
        [
            sys.executable,
            "-m",
            "tallyweir.spark_jobs.bench.jdbc_peer",
            ",".join(topics),
            table,
            query,
        ],
        environment | login_environment(endpoints.home_dsn),
        events=events,
    )
