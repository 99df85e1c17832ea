"""What every ``Participant`` and its home must do; runs on the fake and on Postgres.

Cases are used like those of ``tallyweir.sinks.testing.conformance``. A batch of three
offsets has one row in the home database and one in each branch of the other database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    FatalError,
    OutcomeUnknownError,
    RetryableError,
)
from tallyweir.sinks.protocol.ports import RowsRejectedError
from tallyweir.sinks.protocol.resolution import resolve
from tallyweir.sinks.testing.participant_harness import (
    OTHER,
    BranchDriver,
    Lossy,
    ParticipantHarness,
)
from tallyweir.sinks.testing.planned_batches import HOME


def a_batch_is_committed_in_every_database(harness: ParticipantHarness) -> None:
    """Each row is in its database once; nothing stays prepared; readers see it."""
    driver = BranchDriver.started(harness)
    for sequence in (1, 2):
        assert PublishOutcome.COMMITTED is driver.run()
        assert sequence == harness.visible_through()
    assert harness.published(HOME) == [0, 3]
    assert harness.published(OTHER) == [1, 2, 4, 5]
    assert driver.participant.list_prepared() == []


def a_batch_for_home_alone_prepares_nothing(harness: ParticipantHarness) -> None:
    """There is no branch, no decision about one, and no marker."""
    driver = BranchDriver.started(harness)
    assert PublishOutcome.COMMITTED is driver.run(1)
    assert harness.published(HOME) == [0]
    assert driver.home.read_decided() == {}
    assert driver.participant.newest_markers() == {}
    assert harness.visible_through() == 1


def what_is_prepared_is_not_seen(harness: ParticipantHarness) -> None:
    """A prepared branch is listed; its rows and its marker are not visible yet."""
    driver = BranchDriver.started(harness)
    gids = driver.prepare_batch(decide=False)
    assert gids == driver.participant.list_prepared()
    assert harness.published(OTHER) == []
    assert driver.participant.newest_markers() == {}
    assert [driver.participant.has_marker(gid) for gid in gids] == [False, False]


def a_committed_branch_shows_its_rows_and_its_marker(
    harness: ParticipantHarness,
) -> None:
    """It can be committed once, even after its staged rows are gone."""
    driver = BranchDriver.started(harness)
    first, second = driver.prepare_batch(decide=False)
    harness.empty_staging()
    assert driver.participant.commit_prepared(first)
    assert harness.published(OTHER) == [1]
    assert driver.participant.has_marker(first)
    assert {first.branch: first} == driver.participant.newest_markers()
    assert [second] == driver.participant.list_prepared()
    assert not driver.participant.commit_prepared(first)
    assert not driver.participant.roll_back_prepared(first)
    assert harness.published(OTHER) == [1]


def a_branch_rolled_back_leaves_nothing(harness: ParticipantHarness) -> None:
    """No row and no marker stay; the batch can be prepared under other names."""
    driver = BranchDriver.started(harness)
    gids = driver.prepare_batch(decide=False)
    assert [driver.participant.roll_back_prepared(g) for g in gids] == [True, True]
    assert [driver.participant.commit_prepared(g) for g in gids] == [False, False]
    assert [driver.participant.has_marker(gid) for gid in gids] == [False, False]
    assert (
        harness.published(OTHER),
        driver.participant.list_prepared(),
    ) == ([], [])
    assert PublishOutcome.COMMITTED is driver.run()
    assert harness.published(OTHER) == [1, 2]


def a_branch_that_nobody_prepared_is_unknown(harness: ParticipantHarness) -> None:
    """It can be neither committed nor rolled back, and has no marker."""
    driver = BranchDriver.started(harness)
    with driver.publish_transaction() as (_, orders):
        gids = [order.gid for order in orders.values()]
    for gid in gids:
        assert not driver.participant.commit_prepared(gid)
        assert not driver.participant.roll_back_prepared(gid)
        assert not driver.participant.has_marker(gid)


def a_branch_does_not_get_what_another_has_locked(harness: ParticipantHarness) -> None:
    """The next driver's branch of the same batch waits for an orphan, in vain."""
    old = BranchDriver.started(harness)
    orphan, _ = old.prepare_batch(decide=False)
    new = BranchDriver(harness)
    new.participant.open()
    new.participant.create_tables()

    with (
        new.publish_transaction() as (_, orders),
        pytest.raises(RetryableError) as raised,
    ):
        new.prepare(orders[orphan.branch])

    assert raised.value.code == "POSTGRES_UNAVAILABLE"
    new.publisher.settle()
    assert new.participant.list_prepared() == []
    assert PublishOutcome.COMMITTED is new.run()


def branches_of_others_are_neither_listed_nor_touched(
    harness: ParticipantHarness,
) -> None:
    """Another installation may use the same database, with the same numbers."""
    driver = BranchDriver.started(harness)
    with driver.publish_transaction() as (_, orders):
        order = next(iter(orders.values()))
        claim = replace(order.gid.claim, installation="f" * 12)
        stranger = replace(order.gid, claim=claim)
        driver.prepare(replace(order, gid=stranger))
    assert driver.participant.list_prepared() == []
    BranchDriver.started(harness)
    assert driver.participant.roll_back_prepared(stranger), "it was left alone"


def rows_of_older_epochs_stay_behind(harness: ParticipantHarness) -> None:
    """Each driver starts to count attempts again; the numbers must not be mixed up."""
    old = BranchDriver.started(harness)
    old.stage(old.plan(6))
    new = BranchDriver.started(harness)
    assert PublishOutcome.COMMITTED is new.run()
    assert harness.published(OTHER) == [1, 2]


def missing_rows_of_a_branch_decide_nothing(harness: ParticipantHarness) -> None:
    """A crash of the server empties staging; no database publishes."""
    driver = BranchDriver.started(harness)
    plan = driver.plan()
    tally = driver.stage(plan)
    harness.empty_staging()
    with pytest.raises(RetryableError) as raised:
        driver.publish(plan, tally)
    assert raised.value.code == "STAGED_ROWS_MISSING"
    assert (harness.published(HOME), harness.published(OTHER)) == ([], [])
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan))
    assert harness.published(OTHER) == [1, 2]


def refused_rows_of_a_branch_are_named(harness: ParticipantHarness) -> None:
    """Nothing is published or left prepared in any database."""
    driver = BranchDriver.started(harness)
    harness.refuse([4])
    with pytest.raises(RowsRejectedError) as raised:
        driver.run(6)
    assert [row.offset for row in raised.value.rows] == [4]
    assert (harness.published(HOME), harness.published(OTHER)) == ([], [])
    assert driver.participant.list_prepared() == []
    assert PublishOutcome.COMMITTED is driver.run(3)


def a_lost_answer_to_prepare_decides_nothing(harness: ParticipantHarness) -> None:
    """The branch is prepared or not; in both cases it is finished before the next."""
    driver = BranchDriver.started(harness)
    for acted in (True, False):
        harness.lose_next_answer(Lossy.PREPARE, acted=acted)
        with driver.publish_transaction() as (_, orders), pytest.raises(RetryableError):
            driver.prepare(orders[f"{OTHER}.0"])
        harness.await_loss()
        prepared = driver.participant.list_prepared()
        assert acted is bool(prepared), f"acted: {acted}, prepared: {prepared}"
        driver.publisher.settle()
        assert driver.participant.list_prepared() == []
    assert PublishOutcome.COMMITTED is driver.run()
    assert harness.published(OTHER) == [1, 2]


def a_lost_answer_to_commit_prepared_is_looked_at_again(
    harness: ParticipantHarness,
) -> None:
    """The branch is committed or still prepared; a second call finds out which."""
    driver = BranchDriver.started(harness)
    for acted in (True, False):
        gid, other = driver.prepare_batch(decide=True)
        harness.lose_next_answer(Lossy.COMMIT_PREPARED, acted=acted)
        with pytest.raises(RetryableError):
            driver.participant.commit_prepared(gid)
        harness.await_loss()
        assert acted is driver.participant.has_marker(gid)
        assert driver.participant.commit_prepared(gid) is not acted
        driver.participant.commit_prepared(other)
    assert harness.published(OTHER) == [1, 2, 4, 5]


def a_lost_answer_to_the_decision_counts_once(harness: ParticipantHarness) -> None:
    """Publishing again commits a decided batch, or rolls back and starts over."""
    driver = BranchDriver.started(harness)
    for acted in (True, False):
        plan = driver.plan()
        tally = driver.stage(plan)
        harness.lose_next_answer(Lossy.COMMIT, acted=acted)
        with pytest.raises(OutcomeUnknownError):
            driver.publish(plan, tally)
        outcome = driver.publish(plan, tally)
        assert (outcome is PublishOutcome.ALREADY_COMMITTED) is acted
        assert driver.participant.list_prepared() == []
    assert harness.published(HOME) == [0, 3]
    assert harness.published(OTHER) == [1, 2, 4, 5]
    assert [harness.visible_through()] == [2]


def a_decision_is_unresolved_until_it_is_noted(harness: ParticipantHarness) -> None:
    """Readers of several databases see a batch when all its branches are noted."""
    driver = BranchDriver.started(harness)
    undecided = driver.prepare_batch(decide=False)
    facts = driver.home.read_in_doubt(undecided)
    assert (driver.home.claim, frozenset(), frozenset()) == (
        facts.newest,
        facts.decided,
        facts.unresolved,
    )
    driver.publisher.settle()
    gids = driver.prepare_batch(decide=True)
    facts = driver.home.read_in_doubt([*undecided, gids[0]])
    assert (frozenset(gids[:1]), frozenset(gids)) == (facts.decided, facts.unresolved)
    for gid, visible in zip(gids, (0, 1), strict=True):
        driver.participant.commit_prepared(gid)
        assert harness.visible_through() == 0
        driver.home.note_committed([gid])
        assert visible == harness.visible_through()
    assert frozenset() == driver.home.read_in_doubt(gids).unresolved


def the_newest_of_each_branch_is_what_was_published_last(
    harness: ParticipantHarness,
) -> None:
    """Home's decisions and the markers have the same newest entries."""
    driver = BranchDriver.started(harness)
    for sequence in (1, 2):
        driver.run()
        decided = driver.home.read_decided()
        assert [sequence] * 2 == [gid.sequence for gid in decided.values()]
        assert decided == driver.participant.newest_markers()
    driver.run(1)
    assert decided == driver.home.read_decided()


def the_next_driver_finishes_what_is_in_doubt(harness: ParticipantHarness) -> None:
    """It commits decided branches and rolls the rest back."""
    old = BranchDriver.started(harness)
    old.run()
    for decide, rows in ((True, [1, 2, 4, 5]), (False, [1, 2, 4, 5])):
        gids = old.prepare_batch(decide=decide)
        old = BranchDriver.started(harness)
        assert old.participant.list_prepared() == []
        assert [decide] * 2 == [old.participant.has_marker(gid) for gid in gids]
        assert rows == harness.published(OTHER)
        assert [harness.visible_through()] == [2]


def the_resolver_leaves_what_the_live_driver_may_decide(
    harness: ParticipantHarness,
) -> None:
    """It commits decided branches, and rolls others back once a newer driver works."""
    driver = BranchDriver.started(harness)
    databases = {OTHER: driver.participant}
    decided = driver.prepare_batch(decide=True)
    assert tuple(decided) == resolve(driver.home, databases, at_rest=None).committed
    undecided = driver.prepare_batch(decide=False)
    assert tuple(undecided) == resolve(driver.home, databases, at_rest=None).left
    assert undecided == driver.participant.list_prepared()
    BranchDriver(harness)
    done = resolve(driver.home, databases, at_rest=None)
    assert tuple(undecided) == done.rolled_back
    assert harness.published(OTHER) == [1, 2]


def a_participant_that_went_back_is_found_out(harness: ParticipantHarness) -> None:
    """The running driver finds it before it publishes there, and so does the next."""
    driver = BranchDriver.started(harness)
    driver.run()
    driver.run()
    harness.forget_newest_batch(OTHER)
    with pytest.raises(FatalError) as raised:
        driver.run()
    assert raised.value.code == "PARTICIPANT_BEHIND"
    assert harness.published(HOME) == [0, 3]
    with pytest.raises(FatalError) as raised:
        BranchDriver.started(harness)
    assert raised.value.code == "PARTICIPANT_BEHIND"


def a_home_that_went_back_is_found_out(harness: ParticipantHarness) -> None:
    """Otherwise rows that the other database holds would come a second time."""
    driver = BranchDriver.started(harness)
    driver.run()
    driver.run()
    harness.forget_newest_batch(HOME)
    with pytest.raises(FatalError) as raised:
        BranchDriver.started(harness)
    assert raised.value.code == "PARTICIPANT_AHEAD"
    assert harness.published(OTHER) == [1, 2, 4, 5]


def a_decided_branch_that_is_gone_is_found_out(harness: ParticipantHarness) -> None:
    """Without its marker, a branch that is no longer prepared proves nothing."""
    driver = BranchDriver.started(harness)
    gid, _ = driver.prepare_batch(decide=True)
    driver.participant.roll_back_prepared(gid)
    with pytest.raises(FatalError) as raised:
        BranchDriver.started(harness)
    assert raised.value.code == "BRANCH_LOST"
    assert harness.visible_through() == 0


#: Every fact, in the order of the protocol.
BRANCH_CASES: tuple[Callable[[ParticipantHarness], None], ...] = (
    a_batch_is_committed_in_every_database,
    a_batch_for_home_alone_prepares_nothing,
    what_is_prepared_is_not_seen,
    a_committed_branch_shows_its_rows_and_its_marker,
    a_branch_rolled_back_leaves_nothing,
    a_branch_that_nobody_prepared_is_unknown,
    a_branch_does_not_get_what_another_has_locked,
    branches_of_others_are_neither_listed_nor_touched,
    rows_of_older_epochs_stay_behind,
    missing_rows_of_a_branch_decide_nothing,
    refused_rows_of_a_branch_are_named,
    a_lost_answer_to_prepare_decides_nothing,
    a_lost_answer_to_commit_prepared_is_looked_at_again,
    a_lost_answer_to_the_decision_counts_once,
    a_decision_is_unresolved_until_it_is_noted,
    the_newest_of_each_branch_is_what_was_published_last,
    the_next_driver_finishes_what_is_in_doubt,
    the_resolver_leaves_what_the_live_driver_may_decide,
    a_participant_that_went_back_is_found_out,
    a_home_that_went_back_is_found_out,
    a_decided_branch_that_is_gone_is_found_out,
)
