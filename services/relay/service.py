"""Runs the relay until it is told to stop: as the home's relay, or standing by."""

from __future__ import annotations

from tallyweir.services.process.tenured_service import TenuredService
from tallyweir.services.relay.relay_metrics import RelayMetrics
from tallyweir.services.relay.tenure import RelayTenure
from tallyweir.sinks.postgres.records.relay_feed import RelayFeed

#: After this long without a finished round, the relay is not ready: it cannot reach the
#: home database.
SILENCE_MAX_S = 60.0


class RelayService(TenuredService[RelayFeed]):
    """The relay of a home database.

    Args:
        home_dsn: libpq connection string of the home database.
        bootstrap: ``host:port``, several separated by commas.
        every_s: Seconds from the start of one round to the start of the next.
        metrics: Metrics to update.
    """

    def __init__(
        self, home_dsn: str, bootstrap: str, *, every_s: float, metrics: RelayMetrics
    ) -> None:
        super().__init__(
            "relay", every_s=every_s, silence_max_s=SILENCE_MAX_S, metrics=metrics
        )
        self._home_dsn = home_dsn
        self._bootstrap = bootstrap
        self._metrics = metrics

    def _open_session(self) -> RelayFeed:
        return RelayFeed(self._home_dsn)

    def _make_tenure(self, session: RelayFeed) -> RelayTenure:
        return RelayTenure(
            session, self._bootstrap, self._metrics, is_stopped=self._stop.is_set
        )
