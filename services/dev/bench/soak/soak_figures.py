"""Judges by samples of a long run whether memory, rate and catalog stay in bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tallyweir.services.dev.bench.soak.soak_load import STEP_MICROS
from tallyweir.services.dev.bench.world.bench_world import incomplete_run
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch
from tallyweir.services.local.datasets.page_views import FIRST_VIEW_MICROS
from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.seen_ids.bloom_filter import bits_per_id, rate_of_one

#: How far the last third may be from the first, and the catalog from its computed size.
WITHIN = 0.05
#: The lag may rise by what arrives in so many seconds, since it varies by a batch.
LAG_WITHIN_S = 5.0
#: Parts of the pipeline itself; Tallyweir does not control the broker's memory.
OUR_PARTS = ("jvm", "python", "driver", "postgres")
#: An ID's share of the filters in the driver, by design.
FILTER_BYTES_PER_ID = bits_per_id(rate_of_one(FALSE_POSITIVES)) / 8
#: A fingerprint, its payload's hash, and Postgres' overhead for them.
STORED_BYTES_PER_ID = 25.0
_THIRDS = 3
_MICRO = 1_000_000
_COMPARED = ("flat_bytes", "events_per_second", "lag_records", "catalog_by_computed")

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The state of a run at one moment.

    Attributes:
        at: Time of the sample, in seconds of a monotonic clock.
        sent: Messages that the broker has received.
        read: Messages in published batches.
        memory_bytes: Memory by part that belongs to no file.
        ids: IDs in the catalog.
        expected_ids: IDs that should be there, by the ledger and the watermark.
        catalog_bytes: Size of the catalog's tables.
    """

    at: float
    sent: int
    read: int
    memory_bytes: Mapping[str, int]
    ids: int
    expected_ids: int
    catalog_bytes: int

    @property
    def lag(self) -> int:
        """Messages that are in no published batch."""
        return max(0, self.sent - self.read)

    @property
    def flat_bytes(self) -> float:
        """Memory that must not grow: it excludes what each live ID takes by design."""
        ours = sum(self.memory_bytes[part] for part in OUR_PARTS)
        return ours - FILTER_BYTES_PER_ID * self.ids

    @property
    def computed_bytes(self) -> float:
        """The size that the catalog should have."""
        return STORED_BYTES_PER_ID * self.expected_ids


def expected_ids(
    committed: int,
    *,
    watermark_s: float | None,
    horizon_s: int,
    bucket_seconds: int,
) -> int:
    """Compute how many IDs are alive, given that event time rises with each new event.

    Args:
        committed: Events of published batches, each of which has added an ID.
        watermark_s: The watermark at the start of the newest batch, in seconds since
            1970, which decides which buckets are dropped. None if there was none yet.
        horizon_s: How far behind the watermark IDs are kept.
        bucket_seconds: Length of a bucket; IDs are forgotten by whole buckets.
    """
    if watermark_s is None:
        return committed
    live_from_s = (
        math.floor((watermark_s - horizon_s) / bucket_seconds) * bucket_seconds
    )
    older = math.ceil((live_from_s * _MICRO - FIRST_VIEW_MICROS) / STEP_MICROS)
    return committed - min(committed, max(0, older))


def rate_while_loaded(
    batches: Sequence[MeasuredBatch], *, begin: float, end: float
) -> float:
    """Return events per second from the first batch of a span of time to its last.

    Args:
        batches: Batches of a pipeline that always had something to read.
        begin: Start of the span, in seconds since 1970.
        end: End of the span, likewise.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: too few batches were published in the span.
    """
    inside = [one for one in batches if begin <= one.published_at <= end]
    if len(inside) < _THIRDS:
        raise incomplete_run(
            f"Only {len(inside)} batches were published in {end - begin:.0f} s.",
            fix="Measure on a quieter machine.",
        )
    seconds = inside[-1].published_at - inside[0].published_at
    return sum(one.read for one in inside[1:]) / seconds


def spans_of(samples: Sequence[Sample], *, began: float) -> list[Figures]:
    """Describe each span between two samples."""
    return [
        {
            "second": round(after.at - began),
            "events_per_second": round(
                (after.read - before.read) / (after.at - before.at)
            ),
            "sent_per_second": round(
                (after.sent - before.sent) / (after.at - before.at)
            ),
            "lag_records": after.lag,
            "memory_bytes": dict(after.memory_bytes),
            "flat_bytes": round(after.flat_bytes),
            "ids": after.ids,
            "catalog_bytes": after.catalog_bytes,
            "computed_bytes": round(after.computed_bytes),
            "catalog_by_computed": after.catalog_bytes / max(1, after.computed_bytes),
        }
        for before, after in pairwise(samples)
    ]


def judge(
    spans: Sequence[Figures], *, settling_s: float, rate: float
) -> tuple[Figures, dict[str, bool]]:
    """Compare the first third of a run with the last, after it has settled.

    Args:
        spans: The spans that ``spans_of`` returns.
        settling_s: Spans that end within this time are left out.
        rate: Events per second that were sent.

    Returns:
        Medians of both thirds with their ratios, and which bars hold.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: there are too few spans.
    """
    settled = [one for one in spans if one["second"] > settling_s]
    third = len(settled) // _THIRDS
    if not third:
        raise incomplete_run(
            f"Only {len(settled)} spans of the load were looked at.",
            fix="Measure more --minutes, or on a quieter machine.",
        )
    thirds = settled[:third], settled[-third:]
    compared = {
        name: _compare(*([one[name] for one in part] for part in thirds))
        for name in _COMPARED
    }
    memory, throughput, lag, catalog = compared.values()
    lag_max = lag["first"] + LAG_WITHIN_S * rate
    # A pipeline that catches up reads more than arrives, and need not keep that rate.
    flat_rate = min(throughput["first"], rate)
    return compared, {
        "memory_flat": memory["last"] <= memory["first"] * (1 + WITHIN),
        "throughput_flat": throughput["last"] >= flat_rate * (1 - WITHIN)
        and lag["last"] <= lag_max,
        "catalog_as_computed": all(
            abs(catalog[part] - 1) <= WITHIN for part in ("first", "last")
        ),
    }


def _compare(first: Sequence[float], last: Sequence[float]) -> dict[str, float]:
    before, after = median(first), median(last)
    compared = {"first": round(before, 3), "last": round(after, 3)}
    return compared | ({"ratio": round(after / before, 3)} if before else {})
