"""``tallyweir.spark_jobs.engine.class_archive FILE`` archives Spark's classes.

A driver's JVM spends half of its start on loading, checking and linking about twenty
thousand classes. It can map them from an archive that an earlier JVM wrote instead
(Java's class data sharing, JEP 350). This module runs that earlier JVM: a small stream
that does all that a batch does, but without Kafka and Postgres.

A JVM ignores an archive that does not fit it, for example after an update.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro, to_avro

from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import quoted, start_spark_session

_TASKS = 2
_SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "v", "type": "long"}]}'


def write_class_archive(archive: Path) -> int:
    """Run a JVM that writes its classes to a file when it ends.

    Returns:
        The JVM's exit code.

    Crash:
        The file may be incomplete; the caller moves a complete one into place.
    """
    with tempfile.TemporaryDirectory() as work:
        settings = DriverSettings(
            kafka_bootstrap="",
            home_dsn="",
            databases={},
            spark_master=f"local[{_TASKS}]",
            spark_jars=os.environ.get("TALLYWEIR_SPARK_JARS", ""),
            class_archive=None,
            state_directory=Path(work),
            batch_offsets_max=1,
            driver_memory="1g",
        )
        spark = start_spark_session(
            settings,
            name="class-archive",
            java_options=quoted(f"-XX:ArchiveClassesAtExit={archive}"),
        )
        _run_batches(spark, Path(work) / "checkpoint")
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001
        spark.stop()
        # The JVM ends when its input closes, and then writes the archive.
        jvm.stdin.close()
        return int(jvm.wait())


def _run_batches(spark: SparkSession, checkpoint: Path) -> None:
    def run_batch(rows: DataFrame, _batch_id: int) -> None:
        counted = rows.observe(Observation(), F.count(F.lit(1)).alias("records"))
        record = F.struct(F.col("value").alias("v"))
        events = counted.select(
            from_avro(to_avro(record), _SCHEMA).alias("event"),
            F.xxhash64("value").alias("shard"),
            F.to_json(record).alias("text"),
            "timestamp",
        )
        spread = events.repartitionById(
            _TASKS, F.pmod("shard", F.lit(_TASKS)).cast("int")
        )
        spread.mapInArrow(_count, "rows long").collect()

    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .load()
        .writeStream.foreachBatch(run_batch)
        .option("checkpointLocation", f"file://{checkpoint}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


if __name__ == "__main__":
    sys.exit(write_class_archive(Path(sys.argv[1])))
