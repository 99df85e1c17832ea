"""What the driver hands to its bridge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from sinks.postgres.home import PostgresHome
from sinks.postgres.home_layout import HomeLayout
from sinks.postgres.participant import PostgresParticipant
from sinks.protocol.identity import Epoch
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.publication import Publisher
from spark_jobs.event_frame import EventFrameRecipe
from spark_jobs.kafka_admin import KafkaAdmin
from spark_jobs.lookups import Lookups


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParts:
    """What a bridge works with, all of it belonging to one claim of one epoch."""

    spark: SparkSession
    home: PostgresHome
    participants: Sequence[PostgresParticipant]
    publisher: Publisher
    layout: HomeLayout
    recipe: EventFrameRecipe
    lookups: Lookups
    admin: KafkaAdmin
    epoch: Epoch
    checkpoint: Path
    starts: Mapping[TopicPartition, int]
    cache_directory: Path
    cache_key: str
    #: Spark tasks that stage at a time.
    tasks: int
