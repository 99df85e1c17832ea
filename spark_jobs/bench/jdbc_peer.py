"""The peer of the rate benchmarks that runs on Spark without Tallyweir.

The program uses ``dropDuplicatesWithinWatermark`` on RocksDB, and appends over JDBC in
``foreachBatch``. It deduplicates, but writes to Postgres at least once, because neither
offsets nor IDs are in the transaction of the rows. It is set up as well as Spark's
documentation tells: rewritten batch inserts, changelog checkpointing, as many
partitions as task slots. It prints one line of JSON per batch.

The query ``windows`` counts the events of each user in ten seconds, and appends the
windows that are complete. The query ``joins`` appends the pairs of events of two topics
that have the same user and lie close together. The query ``rows`` appends the events of
one topic. Payloads are Avro or JSON, as the last argument says.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from tallyweir.schemas.contract import load_contract
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import start_spark_session

_STATE_STORE = (
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
)
_FRAME_BYTES = 5


def main() -> None:
    """Read topics, separated by commas, to their end into a table."""
    topics, table, query_name, payloads = sys.argv[1:]
    settings = DriverSettings.from_environment(os.environ, {})
    spark = start_spark_session(settings, name="jdbc-peer")
    tasks = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    # Spark's default; Tallyweir's driver turns it off because of its expressions.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "true")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STATE_STORE)
    spark.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
    )
    names = topics.split(",")
    share = settings.batch_offsets_max // len(names)
    rows = _QUERIES[query_name](
        *(
            _read(spark, settings.kafka_bootstrap, name, share)
            .select(_DECODERS[payloads]().alias("event"))
            .select("event.*")
            for name in names
        )
    )
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
        # Stop Spark first: its state store writes to the checkpoint in the background.
        spark.stop()


def _read(
    spark: SparkSession, bootstrap: str, topic: str, batch_offsets_max: int
) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch_offsets_max))
        .load()
    )


def _from_avro() -> Column:
    body = F.substring(F.col("value"), _FRAME_BYTES + 1, 2**31 - 1)
    return from_avro(body, load_contract("page_view.v1").text)


def _from_json() -> Column:
    fields = (
        "event_id string, user_id long, page string, country string, "
        "viewed_at timestamp, value double"
    )
    return F.from_json(F.col("value").cast("string"), fields)


_DECODERS: dict[str, Callable[[], Column]] = {"avro": _from_avro, "json": _from_json}


def _deduplicate(events: DataFrame, delay: str = "2 minutes") -> DataFrame:
    return events.withWatermark("viewed_at", delay).dropDuplicatesWithinWatermark(
        ["event_id"]
    )


def _count_by_user(events: DataFrame) -> DataFrame:
    """Count events by user in windows that stay open as long as Tallyweir's."""
    window = F.window("viewed_at", "10 seconds")
    counted = _deduplicate(events, "100 seconds").groupBy(window, "user_id").count()
    return counted.select(
        F.col("window.start").alias("window_start"),
        "user_id",
        F.col("count").alias("views"),
    )


def _join(lefts: DataFrame, rights: DataFrame) -> DataFrame:
    """Pair the same events as Tallyweir's pipeline of the benchmark."""
    left = _deduplicate(lefts, "20 seconds").select(
        "user_id",
        F.col("event_id").alias("left_id"),
        F.col("viewed_at").alias("left_at"),
    )
    right = _deduplicate(rights, "20 seconds").select(
        F.col("user_id").alias("right_user"),
        F.col("event_id").alias("right_id"),
        F.col("viewed_at").alias("right_at"),
    )
    is_pair = (
        "user_id = right_user AND right_at >= left_at "
        "AND right_at <= left_at + INTERVAL 4 SECONDS"
    )
    return left.join(right, F.expr(is_pair)).drop("right_user")


_QUERIES: dict[str, Callable[..., DataFrame]] = {
    "rows": _deduplicate,
    "windows": _count_by_user,
    "joins": _join,
}


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


if __name__ == "__main__":
    main()
