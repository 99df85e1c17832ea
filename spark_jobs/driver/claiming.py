"""What precedes a claim of an epoch: wait for the pipeline, and notice a successor.

A driver waits while the pipeline is paused or held by a run.
"""

from __future__ import annotations

import threading

import structlog

from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.identity import Epoch

_LOOK_S = 1.0


def await_nobody_holds(
    home: PostgresHome,
    stop: threading.Event,
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Return once a pipeline is neither paused nor held by a run, or ``stop`` is set.

    Call this before a claim: a claim would fence the run, and does not end a pause. It
    does not wait for a run whose process has ended.

    Raises:
        RetryableError: The home database is unreachable.
    """
    told = None
    while (hold := home.read_hold()) is not None:
        if hold != told:
            log.info("waiting", hold=hold)
            told = hold
        if stop.wait(_LOOK_S):
            return


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
