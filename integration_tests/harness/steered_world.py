"""A steered pipeline and perhaps its fork on a real home, held against their models."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from integration_tests.harness.dying_connection import dying_after
from integration_tests.harness.postgres_driver import PIPELINE, Row
from integration_tests.harness.staffed_pipeline import StaffedPipeline
from integration_tests.harness.steered_pipeline import TABLES
from integration_tests.harness.steering_model import SteeringModel
from tallyweir.sinks.faultpoints import disarm_all
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.protocol.errors import RetryableError

Connection = psycopg.Connection[TupleRow]

#: What a pipeline's fork is called.
FORK = "numbers-2"

_LEDGER = """
SELECT sequence, from_offset, until_offset, read, committed, duplicate, dead
FROM tallyweir.batch_partition WHERE pipeline = %s ORDER BY sequence
"""
_IDS = """
SELECT sequence, sum(ids)::bigint FROM tallyweir.seen_id_run
WHERE pipeline = %s AND NOT is_hidden GROUP BY sequence ORDER BY sequence
"""
_ASIDE = {
    "duplicate": "duplicate_event",
    "dead": "dead_letter",
}
_IN_FORCE = """
SELECT version, version.definition_hash = pipeline.definition_hash,
       version.definition_hash
FROM tallyweir.pipeline_version AS version JOIN tallyweir.pipeline USING (pipeline)
WHERE pipeline = %s ORDER BY version DESC LIMIT 1
"""


@dataclass(kw_only=True)
class SteeredWorld:
    """A home; ``log`` is the one topic that its pipelines read."""

    dsn: str
    directory: Path
    log: list[int] = field(default_factory=list)
    pipelines: dict[str, StaffedPipeline] = field(init=False)
    _looking: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.pipelines = {PIPELINE: self._staff(SteeringModel())}
        self._looking = psycopg.connect(self.dsn)

    def _staff(self, model: SteeringModel) -> StaffedPipeline:
        return StaffedPipeline(
            dsn=self.dsn, directory=self.directory, model=model, log=self.log
        )

    def close(self) -> None:
        """End every connection."""
        disarm_all()
        for one in self.pipelines.values():
            one.close()
        self._looking.close()

    @property
    def first(self) -> StaffedPipeline:
        """The pipeline that is no fork."""
        return self.pipelines[PIPELINE]

    def in_order(self) -> list[StaffedPipeline]:
        """Return both pipelines, the one first whose tables readers know."""
        return sorted(
            self.pipelines.values(), key=lambda one: not one.model.is_in_front
        )

    def add_fork(self) -> None:
        """Let what stands now go on beside it, too."""
        self.pipelines[FORK] = self._staff(self.first.model.fork(FORK))

    def act(
        self,
        do: Callable[[Connection], object],
        *,
        dies_after: int | None = None,
        fences: Collection[str] = (PIPELINE,),
    ) -> bool:
        """Do an act; tell whether it was done, for the models to follow.

        Args:
            do: The act.
            dies_after: Its connection is lost after so many statements.
            fences: The pipelines on which it claims.
        """
        connection = (
            psycopg.connect(self.dsn)
            if dies_after is None
            else dying_after(self.dsn, dies_after)
        )
        try:
            do(connection)
        except (RetryableError, psycopg.OperationalError):
            if dies_after is None:
                raise
            return False
        finally:
            connection.close()
        for name in fences:
            self.pipelines[name].model.epoch += 1
        return True

    def check(self) -> None:
        """Hold the home against the models, and let the product's own audit judge."""
        for one in self.pipelines.values():
            self._check_rows(one.model)
            self._check_ledger(one.model)
            self._check_acts(one.model)
            self._looking.commit()
            receipt = verify(self._looking, one.model.name)
            assert not receipt.failed, (one.model.name, receipt.failed)
            self._looking.commit()

    def _check_rows(self, model: SteeringModel) -> None:
        standing = model.standing
        assert model.shadows == read_shadow_tables(self._looking, model.name)
        numbers, windows = (model.shadows.get(table, table) for table in TABLES)
        rows = self._fetch(
            f"SELECT kafka_offset, number::integer FROM {numbers} ORDER BY kafka_offset"
        )
        assert rows == standing.committed
        # Whatever the batches were: of the records read, each number counts once.
        read = {self.log[offset] for offset in standing.read}
        assert sorted(number for _, number in rows) == sorted(read - {0})
        counted = self._fetch(
            f"SELECT window_start, events FROM {windows} ORDER BY window_start"
        )
        assert counted == standing.windows

    def _check_ledger(self, model: SteeringModel) -> None:
        standing = model.standing
        for fate, table in _ASIDE.items():
            assert standing.put_aside(fate) == self._fetch(
                f"SELECT kafka_offset, sequence FROM tallyweir.{table} "
                "WHERE pipeline = %s ORDER BY kafka_offset, sequence",
                model.name,
            )
        assert self._fetch(_LEDGER, model.name) == [
            (
                *(one.sequence, one.from_offset, one.until_offset),
                one.until_offset - one.from_offset,
                len(one.fates.committed),
                len(one.fates.duplicate),
                len(one.fates.dead),
            )
            for one in standing.batches
        ]
        assert self._fetch(_IDS, model.name) == [
            (one.sequence, len(one.fates.committed))
            for one in standing.batches
            if one.fates.committed
        ]
        position = [] if standing.position is None else [(standing.position,)]
        assert position == self._fetch(
            "SELECT next_offset FROM tallyweir.partition_progress WHERE pipeline = %s",
            model.name,
        )

    def _check_acts(self, model: SteeringModel) -> None:
        """Hold what is about all of it: claims, numbers, versions, snapshots."""
        assert [(model.epoch,)] == self._fetch(
            "SELECT max(epoch) FROM tallyweir.epoch_claim WHERE pipeline = %s",
            model.name,
        )
        assert [(model.last_sequence,)] == self._fetch(
            "SELECT last_sequence FROM tallyweir.pipeline WHERE pipeline = %s",
            model.name,
        )
        in_force = (len(model.versions), True, model.layout.definition_hash)
        assert [in_force] == self._fetch(_IN_FORCE, model.name)
        assert sorted(model.snapshots) == sorted(self.kept_snapshots(model.name))

    def kept_snapshots(self, pipeline: str) -> list[str]:
        """Name the snapshots that the home keeps of a pipeline."""
        kept = "SELECT name FROM tallyweir.snapshot WHERE pipeline = %s"
        return [name for (name,) in self._fetch(kept, pipeline)]

    def _fetch(self, query: str, *values: object) -> list[Row]:
        return self._looking.execute(query.encode(), values or None).fetchall()
