"""Runs the resolver's rounds until it is told to stop, and counts what they did.

``docs/metrics.md`` has the formulas of its metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from tallyweir.services.process.repeating_service import RepeatingService
from tallyweir.services.resolver.merging import MergeReport, merge_catalogs
from tallyweir.services.resolver.rounds import ResolverRound, RoundReport
from tallyweir.sinks.postgres.server.naming import HOME

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


class ResolverMetrics:
    """The resolver's own metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._prepared = Gauge(
            "tallyweir_prepared_transactions",
            "Prepared branches of this home that the last round found.",
            ["database"],
            registry=self.registry,
        )
        self._oldest = Gauge(
            "tallyweir_prepared_transaction_oldest_age_seconds",
            "Age of the oldest of them, by the database's clock; 0 without any.",
            ["database"],
            registry=self.registry,
        )
        self._finished = Counter(
            "tallyweir_resolver_branches",
            "Branches that were finished.",
            ["verdict"],
            registry=self.registry,
        )
        self._rounds = Counter(
            "tallyweir_resolver_rounds", "Rounds done.", registry=self.registry
        )
        self._merged = Counter(
            "tallyweir_resolver_merged_ids",
            "Seen IDs that were merged into chunks; some of them again.",
            registry=self.registry,
        )
        self._failures = Counter(
            "tallyweir_resolver_failures",
            "Databases, branches and merges that an error kept a round from.",
            ["error_code"],
            registry=self.registry,
        )

    def note_merges(self, report: MergeReport) -> None:
        """Add the numbers of a merge."""
        self._merged.inc(sum(one.ids for one in report.merged))
        for code in report.failures:
            self._failures.labels(code).inc()

    def note_round(self, report: RoundReport) -> None:
        """Add the numbers of a round."""
        # A database that the round could not read gets no number rather than an old
        # one.
        self._prepared.clear()
        self._oldest.clear()
        for database, ages_s in report.found.items():
            self._prepared.labels(database).set(len(ages_s))
            self._oldest.labels(database).set(max(ages_s, default=0))
        self._finished.labels("committed").inc(len(report.committed))
        self._finished.labels("rolled_back").inc(len(report.rolled_back))
        for code in report.failures:
            self._failures.labels(code).inc()
        self._rounds.inc()
