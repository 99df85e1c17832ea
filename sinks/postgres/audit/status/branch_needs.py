"""The needs of a home's pipelines in each database that holds their branches."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.status.branches_in_doubt import HomeClaims
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch, snapshot
from tallyweir.sinks.postgres.ledger.output_kinds import kind_of
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy
from tallyweir.sinks.postgres.server.naming import HOME, revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "branch_needs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchNeeds:
    """The needs of one pipeline in one database.

    Attributes:
        branches: How many branches of one batch may be prepared there at once.
        writes: The user's tables, and whether the pipeline updates rows there.
        trial: A claim that no driver can have, for naming trial branches.
    """

    database: str
    branches: int
    writes: Mapping[str, bool]
    trial: EpochClaim


def read_branch_needs(
    home: Connection[TupleRow], claims: HomeClaims
) -> tuple[BranchNeeds, ...]:
    """Read the needs of every registered pipeline, by its newest definition.

    Raises:
        RetryableError: The server went away.
    """
    with snapshot(home, doing="reading the pipelines' definitions"):
        rows = fetch(home, _SQL["definitions"])
    return tuple(
        need
        for row in rows
        for need in _needs(
            row["definition"]["outputs"],
            # Real epochs are counted from 1.
            EpochClaim(
                installation=claims.installation,
                pipeline_number=row["pipeline_number"],
                epoch=Epoch(0),
                nonce=secrets.token_hex(4),
            ),
        )
    )


def _needs(
    outputs: Iterable[Mapping[str, Any]], trial: EpochClaim
) -> list[BranchNeeds]:
    branches: dict[str, int] = {}
    writes: dict[str, dict[str, bool]] = {}
    for output in outputs:
        split = output.get("branches", 1)
        for database in output.get("databases", (HOME,)):
            # The home's transaction publishes an output that is not split.
            if database == HOME and split == 1:
                continue
            branches[database] = max(branches.get(database, 0), split)
            writes.setdefault(database, {}).update(_writes(output))
    return [
        BranchNeeds(
            database=database,
            branches=branches[database],
            writes=writes[database],
            trial=trial,
        )
        for database in sorted(branches)
    ]


def _writes(output: Mapping[str, Any]) -> dict[str, bool]:
    table = output["table"]
    writes = {table: kind_of(output).is_updated}
    is_revised = output.get("late") == LatePolicy.REVISE.value
    if is_revised and output.get("panes") != "discarding":
        writes[revisions_table(table)] = False
    return writes
