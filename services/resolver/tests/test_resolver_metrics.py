"""What a resolver shows of its rounds."""

from __future__ import annotations

from tallyweir.services.resolver.rounds import RoundReport
from tallyweir.services.resolver.service import ResolverMetrics
from tallyweir.sinks.protocol.identity import Epoch, Sequence
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId

_GID = GlobalId(
    claim=EpochClaim(
        installation="0" * 12, pipeline_number=1, epoch=Epoch(1), nonce="0" * 8
    ),
    sequence=Sequence(1),
    branch="billing.0",
    attempt=1,
)


def _value(metrics: ResolverMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tallyweir_{name}", labels)


def test_a_round_shows_what_it_found_and_did() -> None:
    """Numbers of databases are of the last round, the others add up."""
    metrics = ResolverMetrics()
    report = RoundReport(
        committed=[_GID],
        found={"home": [], "billing": [3.0, 70.0]},
        failures=["BRANCH_BUSY"],
    )
    metrics.note_round(report)
    metrics.note_round(report)
    oldest = "prepared_transaction_oldest_age_seconds"
    assert 2 == _value(metrics, "prepared_transactions", database="billing")
    assert 70 == _value(metrics, oldest, database="billing")
    assert 0 == _value(metrics, "prepared_transactions", database="home")
    assert 0 == _value(metrics, oldest, database="home")
    assert 2 == _value(metrics, "resolver_branches_total", verdict="committed")
    assert 0 == _value(metrics, "resolver_branches_total", verdict="rolled_back")
    assert 2 == _value(metrics, "resolver_failures_total", error_code="BRANCH_BUSY")
    assert 2 == _value(metrics, "resolver_rounds_total")


def test_a_database_that_was_not_looked_into_has_no_number() -> None:
    """An old number would look like a good one."""
    metrics = ResolverMetrics()
    metrics.note_round(RoundReport(found={"billing": [3.0]}))
    metrics.note_round(RoundReport(failures=["POSTGRES_UNREACHABLE"]))
    assert _value(metrics, "prepared_transactions", database="billing") is None
