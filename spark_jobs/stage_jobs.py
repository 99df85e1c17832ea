"""The Spark jobs of a batch: phase one stages its events, phase 2b its keys."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from sinks.protocol.ports import BatchPlan, RejectedRow, StagedBatch, StagedKeys
from sinks.protocol.recovery import check_topic_identity
from sinks.protocol.vote_text import parse_keyed_vote, parse_vote
from sinks.protocol.votes import BatchTally
from spark_jobs.bridge_parts import BridgeParts
from spark_jobs.event_classes import Rules
from spark_jobs.event_frame import SHARD, nested_as_json
from spark_jobs.keyed.key_task import KeyTask
from spark_jobs.pipeline.durations import in_microseconds
from spark_jobs.stage_task import VOTE_SCHEMA, StageTask

#: How often a batch is staged at most for Spark's count to agree with the tasks'.
_COUNTS_MAX = 3


class StageJobs:
    """Runs them for one claim of one epoch; each collects the votes of its tasks."""

    def __init__(self, parts: BridgeParts) -> None:
        self._parts = parts

    def stage_events(
        self, raw: DataFrame, plan: BatchPlan, rejected: Sequence[RejectedRow]
    ) -> StagedBatch:
        """Run phase one, and once more while Spark's own count is no evidence.

        An executor that is lost takes its shuffled rows along. Spark reads the source
        again for them, for other tasks than those that had the rows already, and adds
        what it reads to the same observation. So a count above that of the tasks is
        what a lost executor leaves, or the sign of lost rows: only the second comes
        back when the batch is staged again, and is left to ``tally_votes``.
        """
        for _ in range(_COUNTS_MAX):
            staged = self._stage_once(raw, plan, rejected)
            seen = (
                tally for vote in staged.votes for tally in vote.partitions.values()
            )
            if staged.records_read <= sum(tally.counts.read for tally in seen):
                break
        return staged

    def _stage_once(
        self, raw: DataFrame, plan: BatchPlan, rejected: Sequence[RejectedRow]
    ) -> StagedBatch:
        parts = self._parts
        observation = Observation()
        observed = raw.observe(observation, F.count(F.lit(1)).alias("records"))
        events = nested_as_json(parts.recipe.build(observed, parts.lookups.frames))
        transformed = parts.recipe.pipeline.transform is not None
        if parts.layout.horizon_us is not None or transformed:
            # All copies of an ID must meet in one task, and all of one event, which
            # a transform may double.
            task = F.col(SHARD) % F.lit(parts.tasks)
            events = events.repartitionById(parts.tasks, task)
        lines = events.mapInArrow(self._task(plan, rejected), VOTE_SCHEMA).collect()
        votes = [parse_vote(line["vote"]) for line in lines]
        self._check_topic_is_the_same(plan)
        return StagedBatch(votes=votes, records_read=observation.get["records"])

    def _task(self, plan: BatchPlan, rejected: Sequence[RejectedRow]) -> StageTask:
        parts = self._parts
        pipeline = parts.recipe.pipeline
        bound_us = in_microseconds(pipeline.source.future_bound)
        deduplicate = pipeline.deduplicate
        return StageTask(
            layout=parts.layout,
            rules=Rules(
                contract=parts.recipe.contract,
                writers=parts.recipe.writers,
                latest_event_time_us=plan.planned_at_us + bound_us,
                rejected={
                    (row.topic_partition.partition, row.offset): row.detail
                    for row in rejected
                },
                rule_conditions={
                    rule.reason_code: rule.condition for rule in pipeline.validate
                },
            ),
            topic=pipeline.source.topic,
            aliases=parts.recipe.aliases,
            declared_databases=pipeline.written_databases,
            installation=parts.home.claim.installation,
            pipeline_number=parts.home.claim.pipeline_number,
            epoch=parts.epoch,
            after_sequence=plan.after_sequence,
            watermark_us=plan.watermark_us,
            is_transformed=pipeline.transform is not None,
            filter_conditions=parts.recipe.filter_conditions,
            keeps_payload_hashes=deduplicate is not None and deduplicate.conflicts,
            cache_directory=str(parts.cache_directory),
            cache_key=parts.cache_key,
        )

    def _check_topic_is_the_same(self, plan: BatchPlan) -> None:
        """Make sure that the rows just read are still the same topic's.

        A topic that is deleted and made again while a batch reads it would otherwise
        give other events under the planned offsets.
        """
        topic = self._parts.recipe.pipeline.source.topic
        check_topic_identity(plan.topic_ids, {topic: self._parts.admin.read_topic_id()})

    def stage_keys(self, plan: BatchPlan, tally: BatchTally) -> StagedKeys:
        """Run phase 2b: one task for each share of the keys."""
        parts = self._parts
        watermark_us = parts.layout.clock_rule.watermark_after(
            plan.watermark_us,
            plan.clocks_after(tally).values(),
            now_us=plan.planned_at_us,
        )
        outputs = parts.recipe.pipeline.stateful
        task = KeyTask(
            outputs=tuple(zip(outputs, parts.layout.keyed, strict=True)),
            pipeline=parts.layout.pipeline,
            pipeline_number=parts.home.claim.pipeline_number,
            epoch=parts.epoch,
            voted=tally.attempts,
            sequence=plan.after_sequence + 1,
            watermark_us=watermark_us,
            planned_at_us=plan.planned_at_us,
            shards=parts.layout.shards,
            tasks=parts.tasks,
        )
        shares = parts.spark.range(0, parts.tasks, 1, parts.tasks)
        lines = shares.mapInArrow(task, VOTE_SCHEMA).collect()
        votes = [parse_keyed_vote(line["vote"]) for line in lines]
        return StagedKeys(votes=votes, watermark_us=watermark_us)
