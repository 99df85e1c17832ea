"""Decisions with a mistake in them, for the mutants of the model."""
# ruff: noqa: ANN401, D103 - the mutant's name says what is wrong

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallyweir.sinks.protocol.decisions import PublishDecision, decide_publish
from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtFacts,
    InDoubtVerdict,
    check_decided_is_committed,
    compare_history,
    decide_in_doubt,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition, StoredPosition
from tallyweir.sinks.protocol.votes import BatchTally, tally_votes
from tallyweir.sinks.tests.model.rules import claim_of
from tallyweir.sinks.tests.model.states import Staged

# Decisions of publishing.


def no_fence(**asked: Any) -> PublishDecision:
    return decide_publish(
        **{**asked, "newest_epoch": asked["key"].epoch, "claim_kept": True}
    )


def claim_not_compared(**asked: Any) -> PublishDecision:
    return decide_publish(**{**asked, "claim_kept": True})


def fence_after_offsets(**asked: Any) -> PublishDecision:
    if all(
        asked["stored"][r.topic_partition] == r.from_offset for r in asked["ranges"]
    ):
        return PublishDecision.PUBLISH
    return decide_publish(**asked)


def neither_offsets_nor_sequence_compared(**asked: Any) -> PublishDecision:
    fitting = {r.topic_partition: r.from_offset for r in asked["ranges"]}
    return sequence_not_compared(**{**asked, "stored": fitting})


def replay_published(**asked: Any) -> PublishDecision:
    decide_publish(**asked)
    return PublishDecision.PUBLISH


def replay_refused(**asked: Any) -> PublishDecision:
    if decide_publish(**asked) is PublishDecision.ALREADY_COMMITTED:
        raise FatalError("OFFSETS_DISAGREE", saw="", why="", fix="")
    return PublishDecision.PUBLISH


def gap_accepted(**asked: Any) -> PublishDecision:
    stored = {
        r.topic_partition: max(r.from_offset, asked["stored"][r.topic_partition])
        for r in asked["ranges"]
    }
    return decide_publish(**{**asked, "stored": stored})


def sequence_not_compared(**asked: Any) -> PublishDecision:
    return decide_publish(**{**asked, "last_sequence": asked["after_sequence"]})


def repeated_tick_refused(**asked: Any) -> PublishDecision:
    decided = decide_publish(**asked)
    if decided is PublishDecision.ALREADY_COMMITTED and not asked["ranges"]:
        raise FatalError("SEQUENCE_DISAGREES", saw="", why="", fix="")
    return decided


def starts_where_the_log_starts(
    stored: Mapping[TopicPartition, StoredPosition],
    broker: Mapping[TopicPartition, BrokerPosition],
) -> dict[TopicPartition, int]:
    del stored
    return {tp: position.log_start_offset for tp, position in broker.items()}


def starts_where_the_log_ends(
    stored: Mapping[TopicPartition, StoredPosition],
    broker: Mapping[TopicPartition, BrokerPosition],
) -> dict[TopicPartition, int]:
    del stored
    return {tp: position.log_end_offset for tp, position in broker.items()}


# Decisions about what is in doubt.


def abort_ignores_decisions(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    if gid.claim != facts.newest:
        return InDoubtVerdict.ROLL_BACK
    return decide_in_doubt(gid, facts, at_rest=at_rest)


def decided_of_the_dead_is_left(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    if gid.claim == facts.newest and gid.claim != at_rest and gid in facts.decided:
        return InDoubtVerdict.ROLL_BACK
    return decide_in_doubt(gid, facts, at_rest=at_rest)


def live_claim_not_spared(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    del at_rest
    return decide_in_doubt(gid, facts, at_rest=facts.newest)


def strange_claim_at_rest(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    own = facts.newest if at_rest is not None else None
    return decide_in_doubt(gid, facts, at_rest=own)


def orphans_left(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    verdict = decide_in_doubt(gid, facts, at_rest=at_rest)
    return InDoubtVerdict.LEAVE if verdict is InDoubtVerdict.ROLL_BACK else verdict


def own_leftovers_left(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    del at_rest
    return decide_in_doubt(gid, facts, at_rest=None)


def foreign_pipeline_not_spared(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    verdict = decide_in_doubt(gid, facts, at_rest=at_rest)
    if gid.claim.is_of_the_same_pipeline(facts.newest):
        return verdict
    return InDoubtVerdict.ROLL_BACK


def missing_branch_is_fine(gid: GlobalId, *, marker_found: bool) -> None:
    del gid, marker_found


def missing_branch_is_lost(gid: GlobalId, *, marker_found: bool) -> None:
    del marker_found
    check_decided_is_committed(gid, marker_found=False)


def only_behind_is_seen(
    branch: str, *, decided: GlobalId | None, marked: GlobalId | None
) -> None:
    if marked is None or (decided is not None and marked.sequence < decided.sequence):
        compare_history(branch, decided=decided, marked=marked)


def only_ahead_is_seen(
    branch: str, *, decided: GlobalId | None, marked: GlobalId | None
) -> None:
    if marked is not None:
        compare_history(branch, decided=decided, marked=marked)


# Phase one, and the names of claims.


def all_staged_rows(staged: list[Staged], attempts: tuple[int, ...]) -> list[Staged]:
    del attempts
    return staged


def votes_not_counted(votes: Any, ranges: Any, *, records_read: int) -> BatchTally:
    del records_read
    seen = sum(
        vote.partitions[tp].counts.read for vote in votes for tp in vote.partitions
    )
    return tally_votes(votes, ranges, records_read=seen)


def second_vote_wins(votes: Any, ranges: Any, *, records_read: int) -> BatchTally:
    del records_read
    merged = {vote.attempt: vote for vote in votes}
    seen = sum(
        vote.partitions[tp].counts.read
        for vote in merged.values()
        for tp in vote.partitions
    )
    return tally_votes(list(merged.values()), ranges, records_read=seen)


def claim_without_nonce(epoch: int, number: int) -> EpochClaim:
    del number
    return claim_of(epoch, 0)


def same_epoch_again(epochs: list[int]) -> int:
    return max(epochs, default=1)
