"""The claims that one process has made: none of them is a successor's."""

from __future__ import annotations

from sinks.postgres.publish.home import PostgresHome
from sinks.protocol.decisions import check_epoch
from sinks.protocol.identity import Epoch


class OwnClaims:
    """What a driver that starts over within its process knows of itself.

    A claim is committed before all of a start has succeeded, and its answer may be
    lost: an epoch that is newer than the last that was worked under may be one's own.
    """

    def __init__(self) -> None:
        self._epoch: Epoch | None = None
        self._nonces: set[str] = set()

    def claim(self, home: PostgresHome) -> None:
        """Claim an epoch; see ``PostgresHome.claim_epoch`` for the errors."""
        try:
            self._epoch = home.claim_epoch()
        finally:
            self._nonces.add(home.nonce)

    def check_not_superseded(self, home: PostgresHome) -> None:
        """Refuse to go on once another driver has claimed; no batch run or act is.

        Whoever has claimed nothing yet supersedes whom he finds.

        Raises:
            FencedError: Another driver has.
            RetryableError: The server is unreachable.
        """
        newest, nonce = home.read_newest_driver_claim()
        if nonce in self._nonces:
            self._epoch = newest
        if self._epoch is not None:
            check_epoch(self._epoch, newest)
