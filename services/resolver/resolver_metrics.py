"""The resolver's metrics for Prometheus; docs/metrics.md has the formulas."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from tallyweir.services.resolver.merging import MergeReport
from tallyweir.services.resolver.rounds import RoundReport


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
