"""The decisions of one pipeline, as its driver and the resolver read them."""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.stored_state import read_global_id
from tallyweir.sinks.postgres.server.database_link import DatabaseLink
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.decisions import claim_lost
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, InDoubtFacts

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_SQL = load_statements("tallyweir.sinks.postgres.ledger", "decisions.sql")


class PostgresDecisionLedger:
    """The ``DecisionLedger`` port.

    Args:
        link: The link to the home database.
        pipeline: A pipeline that is registered there, with at least one claim.
    """

    def __init__(self, link: DatabaseLink, pipeline: str) -> None:
        self._link = link
        self._pipeline = pipeline

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        """Read claim and decisions under the lock of the pipeline's row.

        Raises:
            FatalError: ``CLAIM_LOST``: the database does not know the pipeline.
            RetryableError: The server is unreachable, read-only, or a publish
                transaction does not end.
        """

        def read(connection: psycopg.Connection[TupleRow]) -> InDoubtFacts:
            values = {
                "pipeline": self._pipeline,
                "gids": [str(gid) for gid in gids],
            }
            connection.execute(_PUBLISH["begin_settings"])
            connection.execute(_PUBLISH["lock_pipeline"], values)
            # Separate statements, after the lock is held, see all that is committed
            # until now.
            row = connection.execute(_SQL["newest_claim"], values).fetchone()
            if row is None:
                raise claim_lost(f"Pipeline {self._pipeline} is not registered.")
            installation, pipeline_number, epoch, nonce = row
            decided = connection.execute(_SQL["decided_among"], values).fetchall()
            unresolved = connection.execute(_SQL["unresolved"], values).fetchall()
            return InDoubtFacts(
                newest=EpochClaim(
                    installation=installation,
                    pipeline_number=pipeline_number,
                    epoch=Epoch(epoch),
                    nonce=nonce,
                ),
                decided=frozenset(read_global_id(gid) for (gid,) in decided),
                unresolved=frozenset(read_global_id(gid) for (gid,) in unresolved),
            )

        return self._link.run("reading the decisions", read)

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        """Let readers of several databases see the batches of some branches.

        Crash:
            The next driver or resolver finds the branches committed, and notes them.
        """

        def note(connection: psycopg.Connection[TupleRow]) -> None:
            # A lost note costs a read of the markers, so this need not wait for the
            # disk.
            connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(
                _SQL["note_committed"],
                {
                    "pipeline": self._pipeline,
                    "gids": [str(gid) for gid in branches],
                },
            )

        self._link.run("recording committed branches", note)
