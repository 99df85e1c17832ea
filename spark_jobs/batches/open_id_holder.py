"""Opens the driver's holder of IDs, and the address at which tasks ask it.

``tallyweir.sinks.seen_ids.round_claims`` decides what the holder answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from pyspark import SparkConf

from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.ledger.stored_state import read_fingerprint_key
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.connection import KeptConnection, connect
from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy, HeldBatches
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, OpenView, RoundTerms
from tallyweir.sinks.seen_ids.claim_server import (
    Address,
    ClaimServer,
    connection_secret,
)
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings

#: Lower than every bucket: nothing has expired while there is no watermark.
_BEFORE_ALL_BUCKETS = -(2**62)

#: Makes the holder of the IDs, given a function that shows those of earlier batches.
MakeHolder = Callable[[OpenView], ClaimHolder]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdClaims:
    """The holder that tasks ask while one claim of an epoch lasts."""

    holder: ClaimHolder
    address: Address


@contextmanager
def opened_id_claims(  # noqa: PLR0913 - keyword-only but for what it is about
    settings: DriverSettings,
    layout: PipelineLayout,
    claim: EpochClaim,
    *,
    directory: Path,
    conf: SparkConf,
    make_holder: MakeHolder = ClaimHolder,
) -> Iterator[IdClaims]:
    """Hold the IDs of a pipeline for one claim, and answer tasks that ask for them.

    Args:
        settings: The address of the home database, and the port to answer at.
        layout: The layout of a pipeline that deduplicates.
        claim: The claim of an epoch that the tasks work under.
        directory: An empty directory, for a copy of the catalog.
        conf: The configuration of the Spark application. Its executors must reach this
            process.
        make_holder: Makes the holder.
    """
    dsn = settings.home_dsn
    name = application_name(claim.pipeline_number, claim.epoch)
    with connect(dsn, application_name=name) as connection:
        secret = connection_secret(read_fingerprint_key(connection))
    kept = KeptConnection()
    merger = ThreadPoolExecutor(1, thread_name_prefix="seen-ids-merge")
    copy = CatalogCopy(directory, merger, false_positives=layout.false_positives)

    def open_view(terms: RoundTerms, held: Mapping[int, Columns]) -> SegmentView:
        connection = kept.get(
            dsn, pipeline_number=claim.pipeline_number, epoch=claim.epoch
        )
        return copy.view(
            catalog=HeldBatches(held, PostgresRunSource(connection, layout.pipeline)),
            live_from_bucket=terms.live_from_bucket,
            through_sequence=terms.through_sequence,
        )

    host = conf.get("spark.driver.host")
    bound = conf.get("spark.driver.bindAddress", host)
    assert host is not None
    assert bound is not None
    with (
        closing(kept),
        closing(copy),
        merger,
        make_holder(open_view) as holder,
        ClaimServer(
            holder,
            address=(bound, settings.claims_port),
            secret=secret,
            on_failure=_tell_failure,
        ) as server,
    ):
        yield IdClaims(holder=holder, address=(host, server.port))


def _tell_failure(error: Exception) -> None:
    """Log why new tasks cannot connect; tasks that are connected can still ask."""
    structlog.get_logger().error(
        "claims not accepted", error=f"{type(error).__name__} {error}"
    )


def terms_of(plan: BatchPlan, layout: PipelineLayout) -> RoundTerms:
    """Return the terms of a batch: its IDs are compared with earlier batches only.

    A run that replaces all earlier batches compares its IDs with no batch.
    """
    replaces = plan.run is not None and plan.run.replaces
    sequence = 0 if replaces else plan.after_sequence
    return terms_after(sequence, plan.watermark_us, layout)


def terms_after(
    sequence: int, watermark_us: int | None, layout: PipelineLayout
) -> RoundTerms:
    """Return the terms for the IDs of events that come after a batch.

    Args:
        sequence: The batch's sequence.
        watermark_us: The watermark after the batch.
        layout: The layout of a pipeline that deduplicates.
    """
    return RoundTerms(
        through_sequence=sequence,
        live_from_bucket=_live_from_bucket(watermark_us, layout),
        corrects=layout.corrected_by is not None,
    )


def _live_from_bucket(watermark_us: int | None, layout: PipelineLayout) -> int:
    oldest_us = layout.expired_before_us(watermark_us)
    if oldest_us is None:
        return _BEFORE_ALL_BUCKETS
    oldest_s = oldest_us // 1_000_000
    return oldest_s // layout.bucket_seconds * layout.bucket_seconds
