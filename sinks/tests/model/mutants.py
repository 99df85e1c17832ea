"""Mistakes in the decisions and steps, each of which the model must find.

A mutant is a set of rules with one of them replaced, and the world that shows the
mistake. Where two defences guard one rule, each of them may be removed without harm;
such a mutant removes both, and its name says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallyweir.sinks.tests.model import mistaken_decisions as decisions
from tallyweir.sinks.tests.model import mistaken_steps as steps
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.states import Budget, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake."""

    name: str
    rules: Rules
    world: World


def _world(*, batches: int = 1, **faults: int) -> World:
    return World(name="for a mutant", budget=Budget(**faults), batches=batches)


_CRASH = _world(crashes=1)
_LOSS = _world(losses=1, batches=2)
_TICKS = World(name="for a mutant", budget=Budget(losses=1), batches=1, ticks=True)
_TAKEOVER = _world(takeovers=1)
_PAUSE = _world(takeovers=1, endings=1)
_RESOLVER = _world(resolver=1)
_HOME_ONCE = World(
    name="for a mutant", budget=Budget(home_restores=1), batches=1, claims_max=5
)
_HOME_TAKEOVER = _world(home_restores=1, takeovers=1)
_RESTORE = _world(restores=1, batches=3)
_ZOMBIE = _world(zombies=1)
_VOTES = _world(votes=1)
_BESIDE = _world(takeovers=1, resolver=1)
_OUTAGE = _world(outages=1)
_AHEAD = World(name="for a mutant", budget=Budget(outages=1), ahead=True)
_HOME_ONLY = World(
    name="for a mutant",
    budget=Budget(home_restores=1),
    batches=2,
    touches=((), ()),
)
_WIDE = World(name="for a mutant", budget=Budget(crashes=1), batches=2, wide=True)
_RETRIED = World(
    name="for a mutant",
    budget=Budget(late=1),
    batches=1,
    everywhere=True,
    refused=frozenset({(0, 0)}),
)
#: All rows of batch 1 die at participant 0, so that its last try has no branches,
#: while a PREPARE of an earlier try is still under way.
_REFUSED = World(
    name="for a mutant",
    budget=Budget(late=1),
    batches=2,
    everywhere=True,
    refused=frozenset({(0, 0), (1, 0)}),
)


def _mutant(name: str, world: World, **replaced: Any) -> Mutant:  # noqa: ANN401 - any rule
    return Mutant(name=name, rules=Rules(**replaced), world=world)


MUTANTS = (
    _mutant("the fence is skipped", _TAKEOVER, decide_publish=decisions.no_fence),
    _mutant(
        "a claim that was made again counts as one's own",
        _HOME_TAKEOVER,
        decide_publish=decisions.claim_not_compared,
    ),
    _mutant(
        "the fence comes after the offsets",
        _TAKEOVER,
        decide_publish=decisions.fence_after_offsets,
    ),
    _mutant(
        "neither offsets nor sequence are compared",
        _LOSS,
        decide_publish=decisions.neither_offsets_nor_sequence_compared,
    ),
    _mutant("a replay is published", _LOSS, decide_publish=decisions.replay_published),
    _mutant("a replay is refused", _LOSS, decide_publish=decisions.replay_refused),
    _mutant(
        "a tick is published again",
        _TICKS,
        decide_publish=decisions.sequence_not_compared,
    ),
    _mutant(
        "a tick that is published is refused",
        _TICKS,
        decide_publish=decisions.repeated_tick_refused,
    ),
    _mutant("what has fired stays due", _TICKS, forgets_fired=False),
    _mutant("a gap is accepted", _HOME_ONLY, decide_publish=decisions.gap_accepted),
    _mutant(
        "a driver starts where the log starts",
        _WIDE,
        decide_start=decisions.starts_where_the_log_starts,
    ),
    _mutant(
        "a driver starts where the log ends",
        _CRASH,
        decide_start=decisions.starts_where_the_log_ends,
    ),
    _mutant(
        "the abort ignores decisions",
        _CRASH,
        decide_in_doubt=decisions.abort_ignores_decisions,
    ),
    _mutant(
        "a decided branch of the live claim is rolled back",
        _RESOLVER,
        decide_in_doubt=decisions.decided_of_the_dead_is_left,
    ),
    _mutant(
        "the live claim is not spared, and no lock awaited",
        _RESOLVER,
        decide_in_doubt=decisions.live_claim_not_spared,
        reading_locks=False,
    ),
    _mutant(
        "who is at rest rolls back another's, and awaits no lock",
        _TAKEOVER,
        decide_in_doubt=decisions.strange_claim_at_rest,
        reading_locks=False,
    ),
    _mutant("orphans are left", _CRASH, decide_in_doubt=decisions.orphans_left),
    _mutant(
        "what a live driver left itself is left",
        _REFUSED,
        decide_in_doubt=decisions.own_leftovers_left,
    ),
    _mutant(
        "another pipeline's branches are not spared",
        World(name="for a mutant", budget=Budget(), batches=1, foreign=True),
        decide_in_doubt=decisions.foreign_pipeline_not_spared,
    ),
    _mutant(
        "a branch that is gone counts as committed",
        _RESTORE,
        check_decided_is_committed=decisions.missing_branch_is_fine,
    ),
    _mutant(
        "a branch that another has committed counts as lost",
        _CRASH,
        check_decided_is_committed=decisions.missing_branch_is_lost,
    ),
    _mutant(
        "only a participant behind is seen",
        _HOME_ONCE,
        compare_history=decisions.only_behind_is_seen,
    ),
    _mutant(
        "only a participant ahead is seen",
        _RESTORE,
        compare_history=decisions.only_ahead_is_seen,
    ),
    _mutant(
        "histories are not compared at the start",
        _HOME_ONCE,
        publisher=steps.ComparesNoHistories,
    ),
    _mutant("a branch compares no history", _RESTORE, branch_compares=False),
    _mutant(
        "what is compared may be another's work in progress",
        _TAKEOVER,
        publisher=steps.BelievesTheFirstLook,
    ),
    _mutant(
        "the facts are read before the list",
        _BESIDE,
        resolve=steps.lists_after_the_facts,
    ),
    _mutant(
        "the resolver notes before it commits",
        _CRASH,
        resolve=steps.notes_before_it_commits,
    ),
    _mutant(
        "decided branches that are not listed are forgotten",
        _CRASH,
        resolve=steps.forgets_what_is_not_listed,
    ),
    _mutant(
        "the resolver acts for the live driver, and awaits no lock",
        _RESOLVER,
        resolve=steps.resolver_works_for_the_live_driver,
        reading_locks=False,
    ),
    _mutant(
        "the resolver commits what nobody decided",
        _CRASH,
        resolve=steps.commits_what_nobody_decided,
    ),
    _mutant("the resolver takes no lock", _BESIDE, reading_locks=False),
    _mutant("publishing takes no lock", _TAKEOVER, publishing_locks=False),
    _mutant(
        "neither a claim nor the resolver waits for the lock",
        _TAKEOVER,
        claiming_locks=False,
        reading_locks=False,
    ),
    _mutant(
        "the decision comes before the last PREPARE",
        _CRASH,
        publisher=steps.DecidesBeforeTheLastPrepare,
    ),
    _mutant(
        "the decision comes after the first COMMIT PREPARED",
        _CRASH,
        publisher=steps.CommitsABranchBeforeTheDecision,
    ),
    _mutant(
        "the driver notes before it commits",
        _CRASH,
        publisher=steps.NotesBeforeItCommits,
    ),
    _mutant(
        "nothing is settled after a lost answer, and nothing swept",
        _LOSS,
        publisher=steps.NeverLooksAgain,
    ),
    _mutant(
        "orphans are swept once, at the start",
        _REFUSED,
        publisher=steps.SweepsAtTheStartOnly,
    ),
    _mutant(
        "a start leaves the dead alone", _CRASH, publisher=steps.LeavesTheDeadAlone
    ),
    _mutant(
        "a lost answer counts as an abort",
        _LOSS,
        publisher=steps.RollsBackWhatItDoesNotKnow,
    ),
    _mutant(
        "a lost answer counts as success",
        _LOSS,
        coordinator=steps.TakesSilenceForSuccess,
    ),
    _mutant(
        "global ids have no nonce",
        _HOME_TAKEOVER,
        claim_of=decisions.claim_without_nonce,
    ),
    _mutant(
        "global ids have no try, and markers no key",
        _RETRIED,
        publisher=steps.NumbersNoTries,
        markers_are_keyed=False,
    ),
    _mutant(
        "an epoch is claimed twice", _TAKEOVER, next_epoch=decisions.same_epoch_again
    ),
    _mutant(
        "rows without a vote are moved, and not counted",
        _ZOMBIE,
        voted_rows=decisions.all_staged_rows,
        counts_moved=False,
    ),
    _mutant("moved rows are not counted", _OUTAGE, counts_moved=False),
    _mutant(
        "a lost vote is not missed", _VOTES, tally_votes=decisions.votes_not_counted
    ),
    _mutant("no marker is left", _CRASH, marks=False),
    _mutant("the answer to PREPARE is not read", _LOSS, checks_tag=False),
    _mutant("the decision does not list its branches", _CRASH, lists_branches=False),
    _mutant("offsets do not advance with the results", _CRASH, advances=False),
    _mutant(
        "a batch is published behind one that came to nothing",
        _AHEAD,
        starts_over=False,
    ),
    _mutant(
        "it is, and neither offsets nor sequence are compared",
        _AHEAD,
        starts_over=False,
        decide_publish=decisions.neither_offsets_nor_sequence_compared,
    ),
)
