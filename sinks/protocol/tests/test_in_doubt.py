"""What may be done with a prepared branch, and whether two histories agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtFacts,
    InDoubtVerdict,
    check_decided_is_committed,
    compare_history,
    decide_in_doubt,
)

_CLAIM = EpochClaim(
    installation="0123456789ab", pipeline_number=7, epoch=Epoch(3), nonce="00c0ffee"
)
_GID = GlobalId(
    claim=_CLAIM, sequence=SequenceNumber(12), branch="billing.0", attempt=2
)
_OLDER = replace(_CLAIM, epoch=Epoch(2), nonce="00000002")
#: The same epoch, claimed before the home database went back in time.
_TWIN = replace(_CLAIM, nonce="0badcafe")


def _verdict(
    gid: GlobalId,
    *,
    newest: EpochClaim = _CLAIM,
    decided: bool,
    at_rest: EpochClaim | None,
) -> InDoubtVerdict:
    facts = InDoubtFacts(
        newest=newest,
        decided=frozenset({gid} if decided else ()),
        unresolved=frozenset(),
    )
    return decide_in_doubt(gid, facts, at_rest=at_rest)


def test_no_two_claims_name_their_attempts_alike() -> None:
    """Nor does one two of its own, be it Spark or the driver that has made them."""
    numbers = (*range(-3, 4), 2**30)
    names = [one.attempt(n) for one in (_CLAIM, _TWIN) for n in numbers]
    assert len(names) == len(set(names))
    last = replace(_CLAIM, nonce="f" * 8)
    assert all(0 <= one.attempt(n) < 2**63 for one in (_CLAIM, last) for n in numbers)


@pytest.mark.parametrize("at_rest", [None, _CLAIM, _OLDER])
@pytest.mark.parametrize("newest", [_CLAIM, _OLDER, _TWIN])
def test_what_is_decided_is_committed_by_everybody(
    newest: EpochClaim, at_rest: EpochClaim | None
) -> None:
    """Whoever decided it, whoever finds it, whatever was claimed since."""
    found = _verdict(_GID, newest=newest, decided=True, at_rest=at_rest)
    assert InDoubtVerdict.COMMIT is found


@pytest.mark.parametrize("claim", [_OLDER, _TWIN])
def test_what_a_superseded_driver_has_not_decided_is_rolled_back(
    claim: EpochClaim,
) -> None:
    """An epoch that was claimed again after a restore is another driver's."""
    gid = replace(_GID, claim=claim)
    assert InDoubtVerdict.ROLL_BACK is _verdict(gid, decided=False, at_rest=None)


def test_what_the_live_driver_may_decide_is_left() -> None:
    """Only the driver itself knows that it has no publish transaction open."""
    assert InDoubtVerdict.LEAVE is _verdict(_GID, decided=False, at_rest=None)
    assert InDoubtVerdict.LEAVE is _verdict(_GID, decided=False, at_rest=_TWIN)
    assert InDoubtVerdict.ROLL_BACK is _verdict(_GID, decided=False, at_rest=_CLAIM)


@pytest.mark.parametrize(
    "claim",
    [
        replace(_OLDER, installation="ffffffffffff"),
        replace(_OLDER, pipeline_number=8),
    ],
)
def test_branches_of_strangers_are_left(claim: EpochClaim) -> None:
    """Two homes, or two pipelines of one, may share a participant."""
    gid = replace(_GID, claim=claim)
    assert InDoubtVerdict.LEAVE is _verdict(gid, decided=False, at_rest=_CLAIM)
    assert InDoubtVerdict.LEAVE is _verdict(gid, decided=True, at_rest=_CLAIM)


def test_a_global_id_reads_back_what_it_wrote() -> None:
    """A name of another make, or too long for Postgres, is not ours."""
    assert str(_GID) == "tallyweir:0123456789ab:7:3:00c0ffee:12:billing.0:2"
    assert _GID == GlobalId.parse(str(_GID))
    assert "billing" == _GID.database
    for other in ("", "other:1", f"x{_GID}", f"{_GID}\n", str(_GID).upper()):
        assert GlobalId.parse(other) is None


def test_a_decided_branch_needs_its_marker() -> None:
    """That it is not prepared any more proves nothing."""
    check_decided_is_committed(_GID, marker_found=True)
    with pytest.raises(FatalError) as raised:
        check_decided_is_committed(_GID, marker_found=False)
    assert "BRANCH_LOST" == raised.value.code


_LATER = replace(_GID, sequence=SequenceNumber(13))


@pytest.mark.parametrize(
    ("decided", "marked", "code"),
    [
        (None, None, None),
        (_GID, _GID, None),
        (_GID, None, "PARTICIPANT_BEHIND"),
        (_LATER, _GID, "PARTICIPANT_BEHIND"),
        (None, _GID, "PARTICIPANT_AHEAD"),
        (_GID, _LATER, "PARTICIPANT_AHEAD"),
        # The same batch, published by another driver than home now knows.
        (_GID, replace(_GID, claim=_TWIN), "PARTICIPANT_AHEAD"),
    ],
)
def test_the_newest_entries_tell_whether_histories_agree(
    decided: GlobalId | None, marked: GlobalId | None, code: str | None
) -> None:
    """The one that lacks the newer entry went back in time."""
    if code is None:
        compare_history("billing.0", decided=decided, marked=marked)
        return
    with pytest.raises(FatalError) as raised:
        compare_history("billing.0", decided=decided, marked=marked)
    assert code == raised.value.code
