"""What a process keeps between the tasks that it stages: mostly connections."""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from tallyweir.sinks.postgres.catalog.catalog_reader import read_tombstones
from tallyweir.sinks.postgres.server.connection import (
    KeptConnection,
    PostgresConnection,
)
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.claim_server import (
    Address,
    ClaimClient,
    connection_secret,
)
from tallyweir.sinks.seen_ids.tombstones import Tombstones


class AnswersClaims(Protocol):
    """Says which IDs were seen before: a holder, or a connection to it."""

    def ask(self, round_number: int, asked: Candidates) -> ClaimAnswer:
        """Claim IDs, as ``ClaimHolder.ask`` does."""


class TaskWorker:
    """Cache of one process between its tasks; safe to discard.

    Only one thread may use it at a time.

    Args:
        holder: The holder of the IDs, if it is in this process.
    """

    def __init__(self, holder: AnswersClaims | None = None) -> None:
        self.connections: defaultdict[str, KeptConnection] = defaultdict(KeptConnection)
        #: The installation's secret, to show keys as hashes; None until it is read.
        self.secret: bytes | None = None
        self._holder = holder
        self._client: ClaimClient | None = None
        self._tombstones: tuple[EpochClaim, Tombstones] | None = None

    def whom_to_ask(self, address: Address, key: bytes) -> AnswersClaims:
        """Return what answers for the IDs of the current claim of an epoch.

        Args:
            address: The holder's address, used if the holder is in another process.
            key: The installation's secret for fingerprints.
        """
        if self._holder is not None:
            return self._holder
        if self._client is None or self._client.address != address:
            if self._client is not None:
                self._client.close()
            self._client = ClaimClient(address, connection_secret(key))
        return self._client

    def tombstones(
        self, home: PostgresConnection, pipeline: str, claim: EpochClaim
    ) -> Tombstones:
        """Return what was erased of a pipeline, read once for each claim.

        Args:
            home: Connection to read by, unless the tombstones of that claim are kept.
            pipeline: The pipeline's name.
            claim: The driver's claim of its epoch.
        """
        if self._tombstones is None or self._tombstones[0] != claim:
            self._tombstones = claim, read_tombstones(home, pipeline)
        return self._tombstones[1]

    def close(self) -> None:
        """Close every connection."""
        for kept in self.connections.values():
            kept.close()
        if self._client is not None:
            self._client.close()


_of_process: TaskWorker | None = None


def this_process() -> TaskWorker:
    """Return the ``TaskWorker`` of this process, one of Spark's Python workers."""
    global _of_process  # noqa: PLW0603 - one per process, which is the point
    if _of_process is None:
        _of_process = TaskWorker()
    return _of_process
