"""What pipelines need of databases, from the definitions that they registered."""

from __future__ import annotations

from tallyweir.sinks.postgres.audit.status.branch_needs import _needs
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtFacts,
    InDoubtVerdict,
    decide_in_doubt,
)

_TRIAL = EpochClaim(
    installation="0" * 12, pipeline_number=1, epoch=Epoch(0), nonce="12345678"
)


def test_only_what_the_home_does_not_publish_itself_needs_branches() -> None:
    """One per database, more where an output is split; windows are updated."""
    outputs: list[dict[str, object]] = [
        {"kind": "append", "table": "plain"},
        {"kind": "append", "table": "split", "branches": 3},
        {"kind": "append", "table": "raw", "databases": ["archive"], "branches": 4},
        {"kind": "append", "table": "few", "databases": ["archive"]},
        {
            "kind": "window",
            "table": "by_hour",
            "databases": ["home", "billing"],
            "late": "revise",
        },
    ]
    assert {
        "archive": (4, {"raw": False, "few": False}),
        "billing": (1, {"by_hour": True, "by_hour_revisions": False}),
        "home": (3, {"split": False}),
    } == {one.database: (one.branches, one.writes) for one in _needs(outputs, _TRIAL)}


def test_a_trial_that_is_left_is_an_orphan_whoever_drives_the_pipeline() -> None:
    """Also of a pipeline whose claims a restore has taken away."""
    for epoch, nonce in ((0, "00000000"), (1, "12345678"), (7, "abcdef01")):
        newest = EpochClaim(
            installation="0" * 12, pipeline_number=1, epoch=Epoch(epoch), nonce=nonce
        )
        trial = GlobalId(
            claim=_TRIAL, sequence=SequenceNumber(0), branch="billing.0", attempt=1
        )
        facts = InDoubtFacts(newest=newest, decided=frozenset(), unresolved=frozenset())
        verdict = decide_in_doubt(trial, facts, at_rest=None)
        assert verdict is InDoubtVerdict.ROLL_BACK
