"""Runs the resolver's rounds until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tallyweir.services.process.repeating_service import RepeatingService
from tallyweir.services.resolver.merging import MergeReport, merge_catalogs
from tallyweir.services.resolver.resolver_metrics import ResolverMetrics
from tallyweir.services.resolver.rounds import ResolverRound, RoundReport
from tallyweir.sinks.postgres.server.branch_names import HOME

#: After this long without a finished round, the resolver is not ready. A round waits
#: for each database that does not answer.
SILENCE_MAX_S = 120.0


class ResolverService(RepeatingService):
    """Does a round at once, and then one every ``every_s`` seconds.

    Args:
        databases: Connection strings of the home and of the others, by name.
        every_s: Seconds from the start of one round to the start of the next.
        metrics: Metrics, updated after each round.
    """

    def __init__(
        self,
        databases: Mapping[str, str],
        *,
        every_s: float,
        metrics: ResolverMetrics,
    ) -> None:
        super().__init__(every_s=every_s, silence_max_s=SILENCE_MAX_S)
        self._databases = databases
        self._metrics = metrics

    def run_once(self) -> RoundReport:
        """Do one round."""
        report = ResolverRound(self._databases, is_stopped=self._stop.is_set).run()
        self._metrics.note_round(report)
        if HOME in report.found:
            self.rounds.beat()
        return report

    def merge_once(self) -> MergeReport:
        """Merge the seen IDs that are due."""
        report = merge_catalogs(self._databases[HOME], is_stopped=self._stop.is_set)
        self._metrics.note_merges(report)
        return report

    def run(self) -> None:
        """Do rounds until stopped; a failure waits for the next round.

        Seen IDs are merged in a thread of their own: a merge may take minutes, and
        branches in doubt hold locks meanwhile. If the process ends while that thread
        works, the result is that of a crash.
        """
        self._log.info(
            "resolver started", databases=list(self._databases), every_s=self._every_s
        )
        threading.Thread(
            target=self._repeat, args=(self.merge_once,), daemon=True
        ).start()
        self._repeat(self.run_once)
        self._log.info("resolver stopped")
