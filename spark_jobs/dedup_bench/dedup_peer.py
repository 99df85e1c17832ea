"""The peer that runs on Spark: ``dropDuplicatesWithinWatermark`` on RocksDB.

One stream fills the state and is then measured. It reads files of IDs, one per batch,
and writes nothing, so that neither broker nor sink count. Another stream reads the
measured files without deduplication, to show what the rest of a batch takes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sinks.seen_ids.id_hash import FINGERPRINT_BYTES, to_bytes
from sinks.seen_ids.ordering import I64Array
from spark_jobs.dedup_bench.numbered_events import EVENT_TIMES, ids_of
from spark_jobs.engine.driver_settings import DriverSettings
from spark_jobs.engine.spark_session import start_spark_session

_STATE_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: Larger than the measured batches, so that filling waits for fewer checkpoints.
_FILL_EVENTS = 1_000_000
_SCHEMA = "event_id binary, event_time timestamp"
_HORIZON = "7 days"


def main() -> None:
    """Fill the state with events ``0`` to ``size``, then measure the batches."""
    task = json.load(sys.stdin)
    settings = DriverSettings.from_environment(os.environ, {})
    spark = start_spark_session(settings, name="dedup-peer")
    slots = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(slots))
    spark.conf.set(f"{_STATE_STORE}.providerClass", _ROCKSDB)
    spark.conf.set(f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    batches = [np.load(file) for file in task["batches"]]
    size = task["size"]
    fill = [
        np.arange(begin, min(begin + _FILL_EVENTS, size), dtype=np.int64)
        for begin in range(0, size, _FILL_EVENTS)
    ]
    with tempfile.TemporaryDirectory(dir=settings.state_directory) as folder:
        alone = _run(spark, Path(folder) / "alone", batches, deduplicate=False)
        progress = _run(spark, Path(folder) / "ids", [*fill, *batches])
        # Stop Spark first: its state store writes to the checkpoint in the background.
        spark.stop()
    figures = _figures(progress[len(fill) :], alone)
    sys.stdout.write(json.dumps(figures) + "\n")


def _run(
    spark: SparkSession,
    folder: Path,
    batches: Iterable[I64Array],
    *,
    deduplicate: bool = True,
) -> list[dict[str, Any]]:
    """Read batches as a stream; return Spark's report on the progress of each."""
    files = folder / "files"
    _write(files, batches)
    events: DataFrame = (
        spark.readStream.schema(_SCHEMA)
        .option("maxFilesPerTrigger", "1")
        .parquet(str(files))
    )
    if deduplicate:
        events = events.withWatermark("event_time", _HORIZON)
        events = events.dropDuplicatesWithinWatermark(["event_id"])
    query = (
        events.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [json.loads(one.json) for one in query.recentProgress]
    return [one for one in told if one["numInputRows"]]


def _write(folder: Path, batches: Iterable[I64Array]) -> None:
    folder.mkdir(parents=True)
    for number, batch in enumerate(batches):
        keys = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(FINGERPRINT_BYTES),
            len(batch),
            [None, pa.py_buffer(to_bytes(ids_of(batch)))],
        )
        times = pa.array(EVENT_TIMES.of(batch)).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"event_id": keys.cast(pa.binary()), "event_time": times})
        file = folder / f"{number:04}.parquet"
        pq.write_table(table, file, compression="none")
        # The stream takes the oldest file first.
        os.utime(file, (number, number))


def _figures(
    measured: list[dict[str, Any]], alone: list[dict[str, Any]]
) -> dict[str, Any]:
    (state,) = measured[-1]["stateOperators"]
    dropped = [
        one["stateOperators"][0]["customMetrics"]["numDroppedDuplicateRows"]
        for one in measured
    ]
    return {
        "us_per_event": _us_per_event(measured),
        # Leave out the first batch, in which Spark compiles what the others run.
        "reading_alone_us": _us_per_event(alone[1:]),
        "ids_at_end": state["numRowsTotal"],
        "dropped": dropped,
        "memory_bytes": state["memoryUsedBytes"],
    }


def _us_per_event(progress: list[dict[str, Any]]) -> float:
    events = sum(one["numInputRows"] for one in progress)
    took_ms = sum(one["durationMs"]["triggerExecution"] for one in progress)
    return float(took_ms * 1000 / events)


if __name__ == "__main__":
    main()
