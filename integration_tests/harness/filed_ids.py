"""A driver that files IDs in the seen-ID catalog, and how drivers see them later."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from integration_tests.harness.postgres_driver import (
    SECOND_US,
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from tallyweir.services.resolver.merging import merge_catalogs
from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.segment import SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import (
    AtOnce,
    Never,
    Pair,
    chunks_cost_nothing,
    run_of,
)

SEED = 20261123
HOUR = 3600
LAYOUT = layout_of(append_table("numbers", number="bigint"))
COUNTS = (
    "SELECT count(*) FILTER (WHERE chunk = -1), "
    "count(*) FILTER (WHERE chunk >= 0 AND NOT is_hidden), "
    "count(*) FILTER (WHERE is_hidden) FROM tallyweir.seen_id_run"
)


@dataclass(kw_only=True)
class FiledIds:
    """A driver that files IDs, and what it has filed."""

    dsn: str
    directory: Path
    driver: PostgresDriver = field(init=False)
    #: Batch, bucket and fingerprints.
    filed: list[tuple[int, int, list[Pair]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = PostgresDriver(dsn=self.dsn, layout=LAYOUT)

    def publish(self, bucket: int, *, ids: int = 100) -> None:
        """Publish a batch whose IDs are new, in two runs; the watermark follows."""
        sequence = len(self.filed) + 1
        rng = random.Random(SEED + sequence)
        pairs = [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(ids)]
        rows = []
        for part in (pairs[::2], pairs[1::2]):
            run = run_of(part, payload_hash=sequence)
            rows.append((bucket, len(run), run.first, run.last, *run.encode()))
        plan = self.driver.plan(1)
        tally = self.driver.stage(
            plan,
            {
                "output_0": self.driver.positioned(plan, [(sequence,)]),
                "seen_id_run": rows,
            },
            event_time_max_us=bucket * SECOND_US,
            buckets={bucket: 1},
        )
        assert PublishOutcome.COMMITTED is self.driver.publish(plan, tally)
        self.filed.append((sequence, bucket, pairs))

    def publish_hours(self, hours: int) -> None:
        """Publish three batches for each of some hours; the last stays open."""
        for hour in range(hours):
            for _ in range(3):
                self.publish(hour * HOUR)

    def view(
        self, through: int | None = None, live_from: int = 0, *, is_idle: bool = False
    ) -> SegmentView:
        """Show the IDs as a driver that starts sees them."""
        with (
            connect(self.dsn, application_name="test") as connection,
            chunks_cost_nothing() if is_idle else nullcontext(),
        ):
            copy = CatalogCopy(self.directory, AtOnce() if is_idle else Never())
            return copy.view(
                catalog=PostgresRunSource(connection, LAYOUT.pipeline),
                live_from_bucket=live_from,
                through_sequence=len(self.filed) if through is None else through,
            )

    def check(
        self, view: SegmentView, through: int | None = None, live_from: int = 0
    ) -> None:
        """See that a view shows all of the batches through one, and no other."""
        last = len(self.filed) if through is None else through
        for sequence, bucket, pairs in self.filed:
            hi, lo = np.array(sorted(pairs), dtype=np.uint64).T
            found = view.find(hi, lo)
            is_seen = sequence <= last and bucket >= live_from
            assert [is_seen] * len(pairs) == found.found.tolist()
            if is_seen:
                assert {sequence} == set(found.payload_hashes.tolist())
                assert {bucket} == set(found.buckets.tolist())

    def merge(self) -> list[int]:
        """Merge what is due; return the buckets."""
        report = merge_catalogs(self.dsn)
        assert not report.failures
        return [merged.bucket for merged in report.merged]

    def counts(self) -> tuple[int, int, int]:
        """Count runs, chunks and hidden chunks."""
        ((runs, chunks, hidden),) = query(self.dsn, COUNTS)
        return runs, chunks, hidden
