"""The peer that runs on Quix Streams: a consumer group and its PostgreSQL sink."""

from __future__ import annotations

import os
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.bench.peers.peer_process import (
    create_peer_table,
    login_environment,
    run_peer_process,
)
from tallyweir.services.dev.bench.world.bench_world import PARTITIONS, TOPIC
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.local.embedded.virtual_environment import PEERS_LOCK, install
from tallyweir.services.process.endpoints import Endpoints

_PROGRAM = Path(__file__).with_name("quix_program.py")


def install_quix() -> None:
    """Install Quix Streams apart from Tallyweir's packages, unless it is there.

    Raises:
        SetUpError: pip failed.
    """
    install(PEERS_LOCK, venv=_environment())


def run_quix_peer(
    endpoints: Endpoints, table: str, *, events: int
) -> list[MeasuredBatch]:
    """Let Quix Streams, once installed, read the topic, which holds ``events``.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Quix Streams failed.
    """
    directory = state_directory() / "bench" / "quix"
    directory.mkdir()
    contract = directory / "contract.avsc"
    contract.write_text(load_contract("page_view.v1").text)
    create_peer_table(endpoints.home_dsn, table)
    database = conninfo_to_dict(endpoints.home_dsn)
    processes = min(os.cpu_count() or 1, PARTITIONS)
    command = [
        *(str(_environment() / "bin" / "python"), "-I", str(_PROGRAM)),
        *(endpoints.kafka_bootstrap, TOPIC, str(contract)),
        *(str(database[name]) for name in ("host", "port", "dbname")),
        *(table, str(directory / "state"), str(events), str(processes)),
    ]
    environment = os.environ | login_environment(endpoints.home_dsn)
    return run_peer_process(command, environment, events=events)


def _environment() -> Path:
    return state_directory() / "peers"
