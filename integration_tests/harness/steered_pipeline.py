"""A pipeline to steer: rows, windows, IDs and dead letters, without Spark and Kafka.

Its topic is a list of numbers, the events' IDs: a repeat is a duplicate, and zero is no
event at all. The versions are two, as those of ``versioned_windows``.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    SECOND_US,
    TP,
    PostgresDriver,
    Row,
    append_table,
    layout_of,
)
from integration_tests.harness.versioned_windows import COUNTED, aggregate
from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import AggregateFunction
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
)
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.tests.catalog import Never, Pair, run_of
from tallyweir.sinks.testing.planned_batches import TOPIC_ID

START = datetime(2026, 3, 1, tzinfo=UTC)
#: Numbers are five minutes apart, so a window has four of them, a bucket twelve.
APART = timedelta(minutes=5)
WINDOW = timedelta(minutes=20)
#: As readers know them: one row for each event, and the windows.
TABLES = ("numbers", "by_window")
_DAY_US = 24 * 3600 * SECOND_US
#: Of the windows, by version.
_AGGREGATES = ((COUNTED,), (("highest", AggregateFunction.MAX), COUNTED))


def steered_layout(
    version: int, *, pipeline: str = PIPELINE, shadows: Mapping[str, str] | None = None
) -> PipelineLayout:
    """Lay out one of both versions; no event is ever late.

    Args:
        version: Which, 0 or 1.
        pipeline: Its name.
        shadows: The tables that it writes instead of those that readers know.
    """
    rows, windows = ((shadows or {}).get(table, table) for table in TABLES)
    outputs = (
        append_table(rows, number="text", at="timestamp with time zone"),
        WindowTable(
            table=windows,
            staging_table="output_1",
            windows=fixed_windows(WINDOW // timedelta(microseconds=1)),
            by=(Column(name="origin", postgres_type="text"),),
            aggregates=tuple(
                aggregate(column, function, number)
                for number, (column, function) in enumerate(_AGGREGATES[version])
            ),
            allowed_lateness_us=0,
            late=LatePolicy.SIDE_TABLE,
        ),
    )
    definition = _define(version, pipeline, rows, windows)
    return replace(
        layout_of(*outputs, watermark_delay_us=_DAY_US),
        pipeline=pipeline,
        definition=definition,
        definition_hash=hashlib.sha256(definition.encode()).hexdigest(),
        horizon_us=7 * _DAY_US,
        shadows=shadows or {},
    )


def _define(version: int, pipeline: str, rows: str, windows: str) -> str:
    """Write it as drivers do: an act that renames its tables comes to the same text."""
    definition = {
        "format": 1,
        "name": pipeline,
        "source": {
            "topic": TP.topic,
            "schema": "number.v1",
            "event_id": {"field": "number"},
            "event_time": "at",
        },
        "deduplicate": {"horizon": "7 days"},
        "outputs": [
            {"kind": "append", "table": rows, "columns": None},
            {
                "kind": "window",
                "table": windows,
                "late": "side_table",
                "by": ["origin"],
                "aggregates": [
                    {"column": column, "function": function.value, "argument": "n"}
                    for column, function in _AGGREGATES[version]
                ],
            },
        ],
    }
    return json.dumps(definition, sort_keys=True, separators=(",", ":"))


LAYOUTS = (steered_layout(0), steered_layout(1))


def instant_of(number: int) -> datetime:
    """When the event of a number happened."""
    return START + number * APART


def window_of(number: int) -> datetime:
    """When the window of a number's event begins."""
    return START + (number * APART // WINDOW) * WINDOW


def fingerprint_of(number: int) -> Pair:
    """Stand in for the product's fingerprint."""
    rng = random.Random(number)
    return rng.getrandbits(64), rng.getrandbits(64)


def broker_of(log: Sequence[int]) -> dict[Any, BrokerPosition]:
    """Say what the broker holds: all of the topic."""
    return {
        TP: BrokerPosition(
            topic_id=TOPIC_ID, log_start_offset=0, log_end_offset=len(log)
        )
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What became of the records of a batch: pairs of offset and number."""

    committed: tuple[tuple[int, int], ...] = ()
    duplicate: tuple[tuple[int, int], ...] = ()
    dead: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, records: Iterable[tuple[int, int]], seen: set[int]) -> Fates:
        """Judge records in their order, after the numbers that were seen before."""
        known = set(seen)
        fates: dict[str, list[tuple[int, int]]] = {
            "committed": [],
            "duplicate": [],
            "dead": [],
        }
        for offset, number in records:
            if not number:
                fate = "dead"
            else:
                fate = "duplicate" if number in known else "committed"
            known.add(number)
            fates[fate].append((offset, number))
        return cls(**{fate: tuple(found) for fate, found in fates.items()})


class StagedIds:
    """What one claim's driver knows of the IDs that were committed.

    Args:
        dsn: The home.
        pipeline: Whose driver.
        directory: For the copy's files.
    """

    def __init__(self, dsn: str, pipeline: str, directory: Path) -> None:
        self._dsn = dsn
        self._pipeline = pipeline
        self._copy = CatalogCopy(directory, Never())

    def seen(self, numbers: Iterable[int], through_sequence: int) -> set[int]:
        """Return those of the numbers that a batch through that one committed."""
        by_pair = {fingerprint_of(number): number for number in numbers if number}
        if not by_pair:
            return set()
        pairs = sorted(by_pair)
        hi, lo = np.array(pairs, dtype=np.uint64).T
        with connect(self._dsn, application_name="test") as connection:
            view = self._copy.view(
                catalog=PostgresRunSource(connection, self._pipeline),
                live_from_bucket=0,
                through_sequence=through_sequence,
            )
            found = view.find(
                np.ascontiguousarray(hi), np.ascontiguousarray(lo)
            ).found.tolist()
        return {
            by_pair[pair]
            for pair, is_found in zip(pairs, found, strict=True)
            if is_found
        }


def stage(
    driver: PostgresDriver, plan: BatchPlan, log: Sequence[int], ids: StagedIds
) -> Vote:
    """Stage a planned batch as a task would, and vote for it."""
    (covered,) = plan.ranges
    offsets = range(covered.from_offset, covered.until_offset)
    records = [(offset, log[offset]) for offset in offsets]
    seen = ids.seen({number for _, number in records}, plan.after_sequence)
    fates = Fates.of(records, seen)
    driver.attempts += 1
    driver.sequence = plan.sequence
    staged = _staged_rows(driver.layout, fates)
    for table, rows in staged.items():
        driver.stage_rows(table, rows, attempt=driver.attempts)
    committed = [number for _, number in fates.committed]
    newest = max(map(instant_of, committed), default=None)
    numbers, windows = (output.table for output in driver.layout.outputs)
    return Vote(
        attempt=Attempt(driver.attempts),
        partitions={
            TP: PartitionTally(
                counts=EventCounts(
                    read=len(records),
                    committed=len(fates.committed),
                    duplicate=len(fates.duplicate),
                    dead=len(fates.dead),
                ),
                offset_min=covered.from_offset,
                offset_max=covered.until_offset - 1,
                event_time_max_us=None
                if newest is None
                else int(newest.timestamp()) * SECOND_US,
            )
        },
        staged={table: len(rows) for table, rows in staged.items()},
        outputs={
            numbers: OutputTally(events=len(committed), rows=len(committed)),
            windows: OutputTally(events=len(committed), rows=len(staged["output_1"])),
        },
        checksum=sum(offset for offset, _ in fates.committed),
        buckets=Counter(map(_bucket_of, committed)),
    )


def _staged_rows(layout: PipelineLayout, fates: Fates) -> dict[str, list[Row]]:
    place = (TP.topic, TP.partition)
    windows: dict[datetime, list[int]] = {}
    buckets: dict[int, list[Pair]] = {}
    for _, number in fates.committed:
        windows.setdefault(window_of(number), []).append(number)
        buckets.setdefault(_bucket_of(number), []).append(fingerprint_of(number))
    runs = {bucket: run_of(pairs) for bucket, pairs in buckets.items()}
    return {
        "output_0": [
            (str(number), instant_of(number), *place, offset)
            for offset, number in fates.committed
        ],
        "output_1": [
            (start, start + WINDOW, "JFK", len(of), *_partials(layout, of))
            for start, of in windows.items()
        ],
        "dead_letter": [
            (*place, offset, None, "UNDECODABLE", "zero", None, None, b"0")
            for offset, _ in fates.dead
        ],
        "duplicate_event": [
            (*place, offset, str(number)) for offset, number in fates.duplicate
        ],
        "seen_id_run": [
            (bucket, len(run), run.first, run.last, *run.encode())
            for bucket, run in runs.items()
        ],
    }


def _partials(layout: PipelineLayout, numbers: Sequence[int]) -> list[int]:
    windows = layout.outputs[1]
    assert isinstance(windows, WindowTable)
    of = {"highest": max(numbers), "events": len(numbers)}
    return [of[aggregate.column.name] for aggregate in windows.aggregates]


def _bucket_of(number: int) -> int:
    seconds = int(instant_of(number).timestamp())
    return seconds // LAYOUTS[0].bucket_seconds * LAYOUTS[0].bucket_seconds


def count_windows(numbers: Iterable[int]) -> list[tuple[datetime, int]]:
    """Return the windows that numbers make, with how many are in each."""
    return sorted(Counter(map(window_of, numbers)).items())
