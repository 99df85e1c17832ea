"""Finishing what is in doubt while others work."""

from __future__ import annotations

from tallyweir.sinks.protocol.in_doubt import GlobalId
from tallyweir.sinks.protocol.resolution import resolve
from tallyweir.sinks.testing.memory_participant import MemoryPreparedBranches
from tallyweir.sinks.testing.memory_participant_harness import MemoryParticipantHarness
from tallyweir.sinks.testing.participant_harness import OTHER, BranchDriver


def test_what_is_decided_while_somebody_looks_is_never_rolled_back() -> None:
    """Listed first, judged by facts that are read afterwards."""
    harness = MemoryParticipantHarness()
    first = BranchDriver.started(harness)
    decided: list[GlobalId] = []

    def take_over(call: str) -> None:
        # A new driver starts, decides a batch and dies before it commits a branch.
        if call == "listing prepared branches":
            harness.other.interlude = _nothing
            decided.extend(BranchDriver.started(harness).prepare_batch(decide=True))
            harness.other.interlude = take_over

    def _nothing(call: str) -> None:
        del call

    harness.other.interlude = take_over
    branches = MemoryPreparedBranches(harness.other, first.home.claim)
    resolve(harness.home.new_driver(), {OTHER: branches}, at_rest=None)
    harness.other.interlude = _nothing

    assert decided
    BranchDriver.started(harness)
    markers = set(harness.other.state.markers.values())
    assert set(decided) <= markers, "a decided branch was rolled back"


def test_the_resolver_may_run_beside_itself() -> None:
    """Whoever comes second finds the branch committed by its marker."""
    harness = MemoryParticipantHarness()
    driver = BranchDriver.started(harness)
    gids = driver.prepare_batch(decide=True)
    branches = MemoryPreparedBranches(harness.other, driver.home.claim)

    def run_beside(call: str) -> None:
        if call == "COMMIT PREPARED":
            harness.other.interlude = lambda _: None
            resolve(harness.home.new_driver(), {OTHER: branches}, at_rest=None)

    harness.other.interlude = run_beside
    done = resolve(harness.home.new_driver(), {OTHER: branches}, at_rest=None)

    assert tuple(gids) == done.committed
    assert {} == harness.other.state.prepared
    assert [1, 2] == harness.published(OTHER)
    assert 1 == harness.visible_through()
