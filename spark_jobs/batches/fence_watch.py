"""Tells a driver, even one at rest, that it is fenced or its pipeline discarded."""

from __future__ import annotations

import time

from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FencedError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.identity import Epoch

#: Seconds between two checks of a driver that has nothing to publish.
_LOOK_S = 1.0


class FenceWatch:
    """Checks the claims; used by the thread that plans.

    A batch notices by itself that it is fenced. But without events there is no batch,
    and the effect of an act, such as offsets that were moved back, would have to wait
    for one.

    Args:
        home: The pipeline's home.
        epoch: The epoch that this driver has claimed.
    """

    def __init__(self, home: PostgresHome, epoch: Epoch) -> None:
        self._home = home
        self._epoch = epoch
        self._looks_again_at = 0.0

    def look_at_rest(self) -> None:
        """Check about once a second; ignore a server that does not answer.

        Raises:
            FencedError: A newer epoch is claimed.
            ConfigurationError: ``PIPELINE_DISCARDED``.
        """
        if time.monotonic() < self._looks_again_at:
            return
        self._looks_again_at = time.monotonic() + _LOOK_S
        try:
            self._check()
        except RetryableError:
            return

    def name(self, error: Exception) -> Exception:
        """Return the fence or discard that explains an error; otherwise the error."""
        if isinstance(error, FencedError):
            return error
        try:
            self._check()
        except FencedError as fenced:
            return fenced
        except ConfigurationError as found:
            return found if found.code == "PIPELINE_DISCARDED" else error
        except TallyweirError:
            return error
        return error

    def _check(self) -> None:
        check_epoch(self._epoch, self._home.read_newest_epoch())
