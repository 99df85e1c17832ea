"""Tells a driver that its pipeline is another's since, or gone; also one at rest."""

from __future__ import annotations

import time

from sinks.postgres.publish.home import PostgresHome
from sinks.protocol.decisions import check_epoch
from sinks.protocol.errors import (
    ConfigurationError,
    FencedError,
    RetryableError,
    TallyweirError,
)
from sinks.protocol.identity import Epoch

#: Seconds between two looks of a driver that has nothing to publish.
_LOOK_S = 1.0


class FenceWatch:
    """Looks at the claims; for the thread that plans.

    A batch notices by itself that it is fenced. Where no events come there is none, and
    what an act has left, such as offsets that were moved back, would wait for one.

    Args:
        home: The pipeline's.
        epoch: That this driver has claimed.
    """

    def __init__(self, home: PostgresHome, epoch: Epoch) -> None:
        self._home = home
        self._epoch = epoch
        self._looks_again_at = 0.0

    def look_at_rest(self) -> None:
        """Look about once a second. A server that is away keeps nobody who rests.

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
        """Tell a driver whose tables are dropped that it is fenced, or discarded."""
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
