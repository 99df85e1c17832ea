"""The peer of the throughput benchmark: what Spark offers without Tallyweir.

``dropDuplicatesWithinWatermark`` on RocksDB, then an append over JDBC in
``foreachBatch``: deduplicated, but at-least-once into Postgres, because neither
offsets nor IDs are in the transaction of the rows. Set up as well as its
documentation tells: rewritten batch inserts, changelog checkpointing, as many
partitions as task slots. Prints one line of JSON per batch.

The query ``windows`` counts the events of each user in ten seconds and appends the
windows that are complete; the other, ``rows``, appends the events.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from schemas.contract import load_contract
from spark_jobs.session import start_session
from spark_jobs.settings import DriverSettings

_STATE_STORE = (
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
)
_FRAME_BYTES = 5


def main() -> None:
    """Read a topic to its end into a table."""
    topic, table, query_name = sys.argv[1:]
    settings = DriverSettings.from_environment(os.environ, {})
    spark = start_session(settings, name="jdbc-peer")
    tasks = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STATE_STORE)
    spark.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
    )
    body = F.substring(F.col("value"), _FRAME_BYTES + 1, 2**31 - 1)
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka_bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.batch_offsets_max))
        .load()
        .select(from_avro(body, load_contract("page_view.v1").text).alias("event"))
        .select("event.*")
    )
    rows = _count_by_user(events) if query_name == "windows" else _deduplicate(events)
    url = os.environ["PEER_JDBC_URL"]
    properties = {
        "user": os.environ["PGUSER"],
        "password": os.environ["PGPASSWORD"],
        "driver": "org.postgresql.Driver",
        "batchsize": "10000",
        "reWriteBatchedInserts": "true",
    }
    began = time.time()

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.write.jdbc(url, table, mode="append", properties=properties)

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            rows.writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for progress in query.recentProgress:
            ended = (
                _seconds(progress["timestamp"])
                + progress["durationMs"]["triggerExecution"] / 1000
            )
            line = {
                "planned_at": max(began, _seconds(progress["timestamp"])),
                "published_at": ended,
                "read": progress["numInputRows"],
            }
            if progress["numInputRows"]:
                sys.stdout.write(json.dumps(line) + "\n")


def _deduplicate(events: DataFrame, delay: str = "2 minutes") -> DataFrame:
    return events.withWatermark("viewed_at", delay).dropDuplicatesWithinWatermark(
        ["event_id"]
    )


def _count_by_user(events: DataFrame) -> DataFrame:
    """Keep windows open as long as the benchmark's own pipeline does."""
    window = F.window("viewed_at", "10 seconds")
    counted = _deduplicate(events, "100 seconds").groupBy(window, "user_id").count()
    return counted.select(
        F.col("window.start").alias("window_start"),
        "user_id",
        F.col("count").alias("views"),
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


if __name__ == "__main__":
    main()
