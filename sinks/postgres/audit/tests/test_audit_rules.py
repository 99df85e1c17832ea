"""The parts of the audits that need no database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tallyweir.sinks.postgres.audit import PipelineState, RecountSpan, check_recount
from tallyweir.sinks.postgres.audit.checks.appended_rows import Block, shared_positions
from tallyweir.sinks.postgres.audit.checks.branches import (
    BranchFindings,
    DecidedBranch,
    Marker,
)
from tallyweir.sinks.postgres.audit.receipt import (
    VIOLATIONS_SHOWN,
    Receipt,
    Totals,
    judge,
)
from tallyweir.sinks.postgres.audit.status.progress import (
    BatchStatus,
    DriverStatus,
    batches_rate,
    decide_state,
    driver_of,
    minute_rate,
)
from tallyweir.sinks.postgres.audit.why.catalog_search import places_of
from tallyweir.sinks.postgres.ledger.epoch_claims import Drain, Pause
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_NOW = datetime(2026, 5, 1, tzinfo=UTC)


def _batch(sequence: int, age_s: float, read: int) -> BatchStatus:
    published = _NOW - timedelta(seconds=age_s)
    return BatchStatus(
        sequence=sequence,
        epoch=1,
        planned_at=published - timedelta(seconds=1),
        published_at=published,
        read=read,
        committed=read,
    )


def _receipt(batches: int, violations: list[str]) -> Receipt:
    check = judge("a_rule", checked=batches, unit="batches", violations=violations)
    totals = Totals(
        read=0,
        committed=0,
        duplicate=0,
        dead=0,
        dead_by_reason={},
        late=0,
        expired=0,
        filtered=0,
        batches=batches,
        drivers=1,
    )
    return Receipt(pipeline="p", checks=(check,), totals=totals)


def _driver(*, is_connected: bool, run: str | None = None) -> DriverStatus:
    return DriverStatus(
        epoch=3,
        host="h",
        process_id=1,
        claimed_at=datetime(2026, 3, 1, tzinfo=UTC),
        is_connected=is_connected,
        run=run,
    )


def test_only_an_older_driver_is_told_from_none_and_from_a_newer_one() -> None:
    """It may not publish any more, so the pipeline is not at work."""
    row = {
        "pipeline_number": 7,
        "epoch": 3,
        "host": "h",
        "process_id": 1,
        "claimed_at": datetime(2026, 3, 1, tzinfo=UTC),
        "run": None,
    }

    def state(*sessions: str) -> PipelineState:
        driver = driver_of(row, sessions)
        return decide_state(
            pause=None, drain=None, driver=driver, lag=0, since_commit_s=1
        )

    assert state("tallyweir p8 e2", "psql") is PipelineState.STOPPED
    assert state("tallyweir p7 e2", "tallyweir p7 e1") is PipelineState.FENCED
    assert state("tallyweir p7 e2", "tallyweir p7 e3") is PipelineState.CAUGHT_UP


@pytest.mark.parametrize(
    ("is_connected", "lag", "expected"),
    [
        (True, 0, PipelineState.RUNNING),
        (True, 5, PipelineState.RUNNING),
        (False, 0, PipelineState.STOPPED),
    ],
)
def test_a_batch_run_at_work_is_running_whatever_waits_in_kafka(
    *, is_connected: bool, lag: int, expected: PipelineState
) -> None:
    """It publishes once, at its end."""
    driver = _driver(is_connected=is_connected, run="orders-1")
    state = decide_state(
        pause=None, drain=None, driver=driver, lag=lag, since_commit_s=None
    )
    assert state is expected


@pytest.mark.parametrize(
    ("is_connected", "lag", "since_commit_s", "expected"),
    [
        (False, 0, 1.0, PipelineState.STOPPED),
        (False, 5, 1.0, PipelineState.STOPPED),
        (True, 0, 1.0, PipelineState.CAUGHT_UP),
        (True, 0, None, PipelineState.CAUGHT_UP),
        (True, 5, 60.0, PipelineState.RUNNING),
        (True, 5, 60.1, PipelineState.STALLED),
        (True, 5, None, PipelineState.STALLED),
        (True, None, 1.0, PipelineState.RUNNING),
        (True, None, 61.0, PipelineState.STALLED),
    ],
)
def test_a_pipeline_that_does_not_move_with_work_left_never_runs(
    *,
    is_connected: bool,
    lag: int | None,
    since_commit_s: float | None,
    expected: PipelineState,
) -> None:
    """The word follows from the driver's session, the lag and the last commit."""
    state = decide_state(
        pause=None,
        drain=None,
        driver=_driver(is_connected=is_connected),
        lag=lag,
        since_commit_s=since_commit_s,
    )
    assert state is expected


@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize(
    ("is_paused", "is_drained", "is_asked", "expected"),
    [
        (True, False, False, PipelineState.PAUSED),
        (True, True, False, PipelineState.DRAINED),
        (False, False, True, PipelineState.DRAINING),
        # A pause keeps the driver that is to end a drain.
        (True, False, True, PipelineState.PAUSED),
    ],
)
def test_what_is_held_is_called_so_whoever_is_there(
    *,
    is_connected: bool,
    is_paused: bool,
    is_drained: bool,
    is_asked: bool,
    expected: PipelineState,
) -> None:
    """A driver that waits for the end of a pause neither runs nor stalls."""
    state = decide_state(
        pause=_pause(is_drained=is_drained) if is_paused else None,
        drain=_drain() if is_asked else None,
        driver=_driver(is_connected=is_connected),
        lag=5,
        since_commit_s=1.0,
    )
    assert state is expected


def _pause(*, is_drained: bool) -> Pause:
    return Pause(
        reason="a test",
        paused_by="ada",
        paused_at=datetime(2026, 3, 1, tzinfo=UTC),
        last_sequence=7,
        is_drained=is_drained,
    )


def _drain() -> Drain:
    return Drain(
        epoch=Epoch(4),
        closes_windows=True,
        reason="a test",
        asked_by="ada",
        asked_at=datetime(2026, 3, 1, tzinfo=UTC),
    )


def test_the_minute_rate_leaves_out_what_is_older() -> None:
    """A minute is a minute, whether or not anything happened in it."""
    batches = [_batch(1, 61, 6000), _batch(2, 60, 600), _batch(3, 1, 60)]
    assert minute_rate(batches, _NOW) == 11.0


def test_the_batches_rate_is_over_the_last_ten() -> None:
    """It runs from the first one's plan to the last one's publish."""
    batches = [_batch(n, 100 - n, 1000 if n <= 2 else 10) for n in range(1, 13)]
    assert batches_rate(batches) == 10.0
    assert batches_rate([]) is None


def test_a_fingerprint_is_found_wherever_it_lies_in_its_run() -> None:
    """First, last and between; what is not there is not found."""
    run = [bytes([n]) * 16 for n in (3, 5, 9)]
    joined = b"".join(run)
    assert [places_of(joined, wanted) for wanted in run] == [(0, 1), (1, 2), (2, 3)]
    missing = [*(bytes([n]) * 16 for n in (0, 4, 10)), b"\x03" * 8 + b"\x05" * 8]
    found = [places_of(joined, one) for one in missing]
    assert found == [(0, 0), (1, 1), (3, 3), (1, 1)]
    assert places_of(b"".join([run[0], run[1], run[1], run[2]]), run[1]) == (1, 3)


def test_a_receipt_over_nothing_is_not_verified() -> None:
    """Nothing wrong and nothing there is not the same as right."""
    assert not _receipt(0, []).is_verified
    assert _receipt(1, []).is_verified
    assert not _receipt(1, ["wrong"]).is_verified


def test_a_receipt_keeps_the_number_of_violations_it_does_not_spell_out() -> None:
    """A receipt fits a screen however much is broken."""
    (check,) = _receipt(1, [f"violation {n}" for n in range(100)]).checks
    assert (len(check.violations), check.violation_count) == (VIOLATIONS_SHOWN, 100)


def test_a_recount_that_finds_more_than_was_read_fails() -> None:
    """A record that the pipeline skipped is as bad as one that it invented."""
    span = RecountSpan(
        offsets=OffsetRange(
            topic_partition=TopicPartition("orders", 0), from_offset=0, until_offset=9
        ),
        read=8,
    )
    assert check_recount((span,), (8,)).violation_count == 0
    assert check_recount((span,), (9,)).violation_count == 1


def _block(number: int, label: str, *bits: int) -> Block:
    taken = sum(1 << bit for bit in bits)
    # As Postgres has it: a bigint, whose last bit is its sign.
    return ("orders", 0, number, label, taken - (taken >> 63 << 64))


def test_a_position_is_shared_in_whichever_bit_of_its_block_it_is() -> None:
    """Blocks of one number meet, and only bits that both have count."""
    home = [_block(0, "in home", 0, 5, 63), _block(2, "in home", 1)]
    billing = [_block(0, "in billing", 0, 6, 63), _block(1, "in billing", 1)]
    dead = [_block(2, "a dead letter", 0, 1)]
    found = list(shared_positions([iter(home), iter(billing), iter(dead)]))
    assert found == [
        ("orders[0]", 0, "in billing", "in home"),
        ("orders[0]", 63, "in billing", "in home"),
        ("orders[0]", 129, "in home", "a dead letter"),
    ]


def test_positions_of_other_partitions_are_not_shared() -> None:
    """An offset is a place in its partition only."""
    former = ("orders", 0, 0, "in home", 1)
    latter = ("orders", 1, 0, "in billing", 1)
    other = ("payments", 0, 0, "in archive", 1)
    assert not list(shared_positions([iter([former]), iter([latter]), iter([other])]))


def _decided(branch: str, sequence: int, *, is_noted: bool) -> DecidedBranch:
    return DecidedBranch(
        sequence=sequence,
        branch=branch,
        gid=f"{branch}/{sequence}",
        committed_at=_NOW if is_noted else None,
        decided_at=_NOW,
    )


def _marker(branch: str, sequence: int, rows: int) -> Marker:
    return Marker(
        sequence=sequence,
        branch=branch,
        gid=f"{branch}/{sequence}",
        rows=rows,
        digests=None,
    )


def test_a_batch_is_pending_while_a_branch_is_neither_marked_nor_noted() -> None:
    """What somebody has seen committed must be there; what is there is there."""
    decided = [
        _decided("billing.0", 1, is_noted=True),
        _decided("billing.0", 2, is_noted=False),
        _decided("archive.0", 2, is_noted=False),
        _decided("billing.0", 3, is_noted=False),
    ]
    found = BranchFindings(
        decided={branch.gid: branch for branch in decided},
        markers={
            "billing": (_marker("billing.0", 2, 4),),
            # A marker in another database than its branch's proves nothing.
            "archive": (_marker("billing.0", 3, 5),),
        },
    )
    assert [branch.gid for branch in found.unmarked] == [
        "billing.0/1",
        "archive.0/2",
        "billing.0/3",
    ]
    assert found.pending_sequences == {2, 3}
    assert found.marked_rows("billing") == {2: 4}
    assert found.marked_rows("archive") == {}
