"""Tests whether the checker notices five kinds of damage to the real tables.

Each kind is done in a transaction, checked over the same connections, and rolled back.
If the checker passes a damaged run, the run fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from psycopg import Connection, sql

from tallyweir.services.dev.chaos.chaos_world import EVENTS_TABLE, PIPELINE
from tallyweir.services.dev.chaos.observed_run import Connections, ObservedRun, observe
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.chaos", "self_test.sql")


class Damage(StrEnum):
    """A kind of damage to a finished run."""

    ROW_REMOVED = "row_removed"
    ROW_DOUBLED = "row_doubled"
    PAYLOADS_SWAPPED = "payloads_swapped"
    ROW_MOVED = "row_moved_to_another_batch"
    OFFSET_ADVANCED = "offset_advanced"


def run_self_test(
    connections: Connections,
    finds_fault: Callable[[ObservedRun], bool],
    *,
    seed: int,
) -> dict[Damage, bool]:
    """Do every kind of damage once; return which kinds were noticed.

    Args:
        connections: Connections by database name, in autocommit. Their tables are
            unchanged afterwards.
        finds_fault: The checker.
        seed: Decides which rows are damaged.
    """
    source = random.Random(f"{seed}/self-test")  # noqa: S311 (repeatable)
    noticed = {}
    for damage in Damage:
        database = source.choice(_databases_with_rows(connections))
        with (
            connections[HOME].transaction(force_rollback=True),
            connections[database].transaction(force_rollback=True),
        ):
            _do(damage, connections, database, source)
            noticed[damage] = finds_fault(observe(connections))
    return noticed


def _do(
    damage: Damage, connections: Connections, database: str, source: random.Random
) -> None:
    victim = connections[database]
    (first, second) = _some_rows(victim, source)
    place = {"partition": first[0], "offset": first[1]}
    match damage:
        case Damage.ROW_REMOVED:
            _execute(victim, "remove_row", **place)
        case Damage.ROW_DOUBLED:
            _execute(victim, "double_row", **place)
        case Damage.PAYLOADS_SWAPPED:
            _execute(victim, "swap_payloads", event_ids=[first[2], second[2]])
        case Damage.ROW_MOVED:
            ((target,),) = connections[HOME].execute(
                _SQL["other_batch"], {"pipeline": PIPELINE, **place}
            )
            _execute(victim, "move_row", target=target, **place)
        case Damage.OFFSET_ADVANCED:
            home = connections[HOME]
            _execute(
                home, "advance_offset", pipeline=PIPELINE, partition=place["partition"]
            )


def _databases_with_rows(connections: Connections) -> list[str]:
    return [
        name for name, connection in connections.items() if _count_rows(connection) > 1
    ]


def _some_rows(
    connection: Connection[tuple[Any, ...]], source: random.Random
) -> list[tuple[Any, ...]]:
    """Choose two consecutive rows."""
    skip = source.randrange(_count_rows(connection) - 1)
    return connection.execute(
        _SQL["some_rows"].format(table=sql.Identifier(EVENTS_TABLE)),
        {"skip": skip, "count": 2},
    ).fetchall()


def _count_rows(connection: Connection[tuple[Any, ...]]) -> int:
    statement = _SQL["count_rows"].format(table=sql.Identifier(EVENTS_TABLE))
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def _execute(
    connection: Connection[tuple[Any, ...]], statement: str, **values: object
) -> None:
    composed = _SQL[statement].format(table=sql.Identifier(EVENTS_TABLE))
    done = connection.execute(composed, values)
    assert done.rowcount > 0, f"{statement} found nothing to damage"


def as_violations(noticed: Mapping[Damage, bool]) -> list[str]:
    """Say which damage was not noticed."""
    return [f"{damage} was not noticed" for damage, was in noticed.items() if not was]
