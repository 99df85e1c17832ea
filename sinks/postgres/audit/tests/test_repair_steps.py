"""What a repair plan says, by what was found; ``test_repair`` follows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tallyweir.sinks.postgres.audit.repair import (
    BranchEntry,
    BranchHistory,
    Disagreement,
    RowsBeyond,
    beyond,
    repair_steps,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    AuditedSource,
    _output,
)
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition

_APPEND = _output({"table": 'odd "name', "kind": "append", "databases": ["billing"]})
_WINDOW = _output({"table": "by_hour", "kind": "window", "databases": ["billing"]})
_PIPELINE = AuditedPipeline(
    name="p",
    number=7,
    installation="0123456789ab",
    source=AuditedSource(topics=("it's",), schemas=("s",)),
    guarantee=Guarantee.EXACTLY_ONCE,
    outputs=(_APPEND,),
    id_columns=("id",),
    id_header=None,
    needs_headers=False,
    event_time="at",
    horizon_s=None,
    bucket_seconds=3600,
    watermark=None,
    last_sequence=3,
)


def _entry(sequence: int) -> BranchEntry:
    return BranchEntry(
        sequence=sequence,
        gid=f"gid-{sequence}",
        at=datetime(2026, 5, 1, 12, 0, sequence, 7, tzinfo=UTC),
        rows=1,
    )


_AGREED = BranchHistory(
    branch="billing.0",
    agreed=_entry(3),
    only_marked=(),
    only_decided=(),
    in_doubt=(),
)
_AHEAD = replace(_AGREED, only_marked=(_entry(4), _entry(5)))
_BEHIND = replace(_AGREED, agreed=_entry(1), only_decided=(_entry(2), _entry(3)))


def _found(*branches: BranchHistory, pipeline: AuditedPipeline) -> Disagreement:
    return Disagreement(
        pipeline=pipeline,
        branches=branches,
        next_offsets={TopicPartition("it's", 0): 10, TopicPartition("it's", 1): 20},
        rows_beyond=(
            RowsBeyond(database="billing", output=_APPEND, rows=5, examples=()),
        ),
        missing=(),
    )


def test_rows_beyond_are_looked_for_in_each_topic() -> None:
    """One that is read no more counts with its position, a batch run's does not."""
    source = AuditedSource(topics=("b",), schemas=("s",))
    positions = {
        TopicPartition("a", 1): 3,
        TopicPartition("batch:x", 0): 9,
    }
    found = beyond(replace(_PIPELINE, source=source), positions)
    assert (
        "kafka_topic = 'a'\n"
        "  AND kafka_offset >= CASE kafka_partition WHEN 1 THEN 3 ELSE 0 END\n"
        "  OR kafka_topic = 'b'\n"
        "  AND kafka_offset >= CASE kafka_partition WHEN 0 THEN 0 ELSE 0 END"
    ) == found.as_string()


def test_nothing_is_to_be_done_where_all_agree() -> None:
    """Also while something is in doubt, which is no disagreement."""
    doubtful = replace(_AGREED, in_doubt=(_entry(4),))
    assert () == repair_steps(_found(_AGREED, doubtful, pipeline=_PIPELINE))


def test_rows_that_come_again_are_deleted_with_their_markers_in_one_transaction() -> (
    None
):
    """Names and values are quoted; the counts stand beside."""
    (step,) = (
        step
        for step in repair_steps(_found(_AHEAD, pipeline=_PIPELINE))
        if step.statements
    )
    assert "billing" == step.database
    assert step.statements is not None
    offsets = "CASE kafka_partition WHEN 0 THEN 10 WHEN 1 THEN 20 ELSE 0 END"
    assert step.statements.split("\n") == [
        "BEGIN;",
        'DELETE FROM "public"."odd ""name"',
        "WHERE kafka_topic = 'it''s'",
        f"  AND kafka_offset >= {offsets};  -- DELETE 5",
        "DELETE FROM tallyweir_participant.marker",
        "WHERE installation = '0123456789ab'",
        "  AND pipeline_number = 7",
        "  AND gid = ANY('{gid-4,gid-5}');  -- DELETE 2",
        "COMMIT;",
    ]


def test_a_database_with_windows_is_restored_to_before_the_first_strange_batch() -> (
    None
):
    """At that moment the batch before it was committed, and it was not prepared."""
    pipeline = replace(_PIPELINE, outputs=(_APPEND, _WINDOW))
    other = replace(_AHEAD, branch="billing.1", only_marked=(_entry(6),))
    steps = repair_steps(_found(other, _AHEAD, pipeline=pipeline))
    assert not any(step.statements for step in steps)
    (text,) = (step.text for step in steps if step.text.startswith("Restore"))
    assert "recovery_target_time = '2026-05-01 12:00:04.000007+00:00'" in text
    assert "by_hour" in text


def test_what_is_missing_is_brought_back_before_anything_is_taken_away() -> None:
    """To bring it back home may have to go back, and then more is ahead of it."""
    ahead = replace(_AHEAD, branch="audit.0")
    steps = repair_steps(_found(_BEHIND, ahead, pipeline=_PIPELINE))
    assert not any(step.statements for step in steps)
    either, other = (s.text for s in steps if s.text.startswith(("Either", "Or")))
    assert "at or after 2026-05-01 12:00:03.000007+00:00" in either
    assert "recovery_target_time = '2026-05-01 12:00:02.000007+00:00'" in other
