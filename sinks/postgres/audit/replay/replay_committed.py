"""Reads the pipeline as it stands, from one snapshot of each of its databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.audit.replay.replay_ledger import (
    RecordedPipeline,
    read_recorded,
)
from tallyweir.sinks.postgres.audit.replay.replay_rows import Side
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.server.connection import connect, read_fingerprint_key
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.protocol.errors import RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.audit.replay", "replay.sql")
_LEDGER = load_statements("tallyweir.sinks.postgres.ledger", "ledger.sql")

#: How often to look for one moment of all databases, and the seconds between tries.
_TRIES = 60
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A pipeline as it was read at one moment.

    Attributes:
        side: Its databases, each in the snapshot of that moment.
        recorded: The contents of its ledger.
        tombstones: The tombstones of everything erased.
        sent: How many messages of its outbox were sent.
        fingerprint_key: The home's secret.
    """

    audited: AuditedPipeline
    side: Side
    recorded: RecordedPipeline
    tombstones: tuple[DictRow, ...]
    sent: int
    fingerprint_key: bytes


@contextmanager
def one_moment(
    home_dsn: str, pipeline: str, databases: Mapping[str, str]
) -> Iterator[Committed]:
    """Read a pipeline at a moment at which its databases hold the same batches.

    Args:
        home_dsn: Connection string of its home. Nothing is written anywhere.
        pipeline: The pipeline's name.
        databases: Connection strings of the other databases, by name.

    Raises:
        ConfigurationError: As ``read_pipeline`` and ``connect_databases`` do.
        RetryableError: ``REPLAY_UNSETTLED``, or a server does not respond.
    """
    waiting = threading.Event()
    with ExitStack() as opened:
        home = opened.enter_context(
            connect(home_dsn, application_name="tallyweir replay")
        )
        key = read_fingerprint_key(home)
        with snapshot(home, doing="looking for the pipeline's databases"):
            names = databases_of(read_pipeline(home, pipeline))
        parts = connect_databases(opened, home, names, databases)
        for _ in range(_TRIES):
            with snapshot(home, doing="reading the pipeline"), ExitStack() as beside:
                audited = read_pipeline(home, pipeline)
                beside.enter_context(parts.snapshots(audited))
                connections = {
                    name: one.connection for name, one in parts.by_name.items()
                }
                if _is_one_moment(audited, connections):
                    yield _read(audited, connections, key)
                    return
            waiting.wait(_PAUSE_S)
    raise RetryableError(
        "REPLAY_UNSETTLED",
        saw=f"In {_TRIES} tries, the databases of pipeline {pipeline} never held the "
        "same batches.",
        why="The replay would be compared with batches that are only partly committed.",
        fix=f"Pause the pipeline while it is read: tallyweir pause {pipeline}.",
    )


def _is_one_moment(
    audited: AuditedPipeline, connections: Mapping[str, Connection[TupleRow]]
) -> bool:
    home = connections[HOME]
    of_pipeline = {"pipeline": audited.name}
    if fetch_one(home, _SQL["unresolved"], **of_pipeline)["branches"]:
        return False
    marked = {"installation": audited.installation, "number": audited.number}
    newest = [
        fetch_one(connection, _SQL["newest_markers"], **marked)["sequence"]
        for name, connection in connections.items()
        if name != HOME
    ]
    return max(newest, default=0) <= audited.last_sequence


def _read(
    audited: AuditedPipeline,
    connections: Mapping[str, Connection[TupleRow]],
    fingerprint_key: bytes,
) -> Committed:
    home, name = connections[HOME], audited.name
    ids = fetch(home, _LEDGER["topic_ids"], pipeline=name)
    recorded = read_recorded(home, name, {row["topic"]: row["topic_id"] for row in ids})
    return Committed(
        audited=audited,
        side=Side(
            is_replayed=False,
            databases=connections,
            pipeline=name,
            number=audited.number,
            installation=audited.installation,
            own=read_shadow_tables(home, name),
        ),
        recorded=recorded,
        tombstones=tuple(fetch(home, _SQL["tombstones"], pipeline=name)),
        sent=fetch_one(home, _SQL["sent_messages"], pipeline=name)["sent"],
        fingerprint_key=fingerprint_key,
    )
