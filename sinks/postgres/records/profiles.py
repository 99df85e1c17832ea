"""Keeps the newest flame graphs of each pipeline and kind in the home database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch, snapshot
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.records", "profiles.sql")

#: Number of profiles kept for each kind and pipeline.
KEPT = 5


class ProfileKind(StrEnum):
    """What was sampled."""

    PYTHON = "python"
    JVM = "jvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenProfile:
    """A flame graph that was just taken.

    Attributes:
        epoch: Epoch of the sampled driver.
        seconds: How long it was sampled.
        samples: Number of stacks in the flame graph.
        svg: The flame graph.
    """

    pipeline: str
    kind: ProfileKind
    host: str
    epoch: int
    seconds: int
    samples: int
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProfile:
    """A kept profile, without its flame graph."""

    profile_id: int
    kind: str
    taken_by: str
    taken_at: datetime
    host: str
    epoch: int
    seconds: int
    samples: int


def keep_profile(connection: Connection[TupleRow], taken: TakenProfile) -> int:
    """Keep a flame graph, and delete the oldest of its kind beyond ``KEPT``.

    Returns:
        Its number.

    Raises:
        ConfigurationError: The role may not write it.
        RetryableError: The server went away.

    Crash:
        One transaction: the flame graph is kept, or nothing has changed.
    """
    values = {
        "pipeline": taken.pipeline,
        "kind": taken.kind.value,
        "host": taken.host,
        "epoch": taken.epoch,
        "seconds": taken.seconds,
        "samples": taken.samples,
        "svg": taken.svg,
    }
    with translated("keeping a profile"), connection.transaction():
        (row,) = fetch(connection, _SQL["keep"], **values)
        fetch_nothing = {"pipeline": taken.pipeline, "kind": taken.kind.value}
        connection.execute(_SQL["forget_older"], {**fetch_nothing, "kept": KEPT})
    return int(row["profile_id"])


def list_profiles(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[KeptProfile, ...]:
    """Return the profiles of a pipeline, the newest first."""
    with snapshot(connection, doing="listing profiles"):
        rows = fetch(connection, _SQL["list"], pipeline=pipeline)
    return tuple(KeptProfile(**row) for row in rows)


def read_flame_graph(
    connection: Connection[TupleRow], pipeline: str, profile_id: int
) -> str:
    """Return the SVG of a profile.

    Raises:
        ConfigurationError: ``FLAME_GRAPH_UNKNOWN``.
    """
    with snapshot(connection, doing="reading a profile"):
        rows = fetch(connection, _SQL["svg"], pipeline=pipeline, profile_id=profile_id)
    if not rows:
        raise ConfigurationError(
            "FLAME_GRAPH_UNKNOWN",
            saw=f"Pipeline {pipeline} has no profile {profile_id}.",
            why=f"Only the newest {KEPT} profiles of each kind are kept.",
            fix=f"Take a new one: tallyweir profile {pipeline}.",
        )
    return str(rows[0]["svg"])
