"""The parts that the driver hands to its bridge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.spark_jobs.batches.prepared_pipeline import ClaimedDatabases
from tallyweir.spark_jobs.batches.stage_jobs import StageJobs
from tallyweir.spark_jobs.source.kafka_admin import KafkaAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParts:
    """The parts of a bridge; all of them belong to one claim of one epoch."""

    databases: ClaimedDatabases
    jobs: StageJobs
    admin: KafkaAdmin
    checkpoint: Path
    starts: Mapping[TopicPartition, int]

    @property
    def home(self) -> PostgresHome:
        return self.databases.home

    @property
    def epoch(self) -> Epoch:
        return self.home.claim.epoch
