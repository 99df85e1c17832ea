"""Remember this process's claims of epochs, to tell them from a successor's claim."""

from __future__ import annotations

from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.identity import Epoch


class OwnClaims:
    """The claims of a driver that starts over within its process.

    A claim is committed before the rest of a start succeeds, and its answer may be
    lost. So an epoch newer than the driver's last known one may still be its own.
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
        """Refuse to go on once another driver has claimed.

        Claims of batch runs and acts do not count. A driver that has not claimed yet
        may supersede any other.

        Raises:
            FencedError: Another driver has claimed.
            RetryableError: The server is unreachable.
        """
        newest, nonce = home.read_newest_driver_claim()
        if nonce in self._nonces:
            self._epoch = newest
        if self._epoch is not None:
            check_epoch(self._epoch, newest)
