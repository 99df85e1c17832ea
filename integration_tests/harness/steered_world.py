"""A steered pipeline on a real home, two places for its drivers, and its model.

Every step is done to the home by the product's own code and to the model, and then both
are held against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from integration_tests.harness.dying_connection import dying_after
from integration_tests.harness.fresh_databases import KilledError, close
from integration_tests.harness.postgres_driver import PIPELINE, PostgresDriver, Row
from integration_tests.harness.steered_pipeline import (
    LAYOUTS,
    StagedIds,
    stage,
)
from integration_tests.harness.steering_model import Standing, SteeringModel
from sinks.faultpoints import FaultPoint, Side, arm, disarm_all
from sinks.postgres.audit import verify
from sinks.postgres.home_layout import HomeLayout
from sinks.protocol.decisions import PublishOutcome
from sinks.protocol.errors import FencedError, RetryableError, TallyweirError
from sinks.protocol.ports import BatchPlan
from sinks.protocol.votes import BatchTally, tally_votes

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
class _Seat:
    """A driver, and the batch that it has staged."""

    driver: PostgresDriver
    ids: StagedIds
    epoch: int
    staged: tuple[BatchPlan, BatchTally] | None = None


@dataclass(kw_only=True)
class SteeredWorld:
    """One pipeline; ``log`` is its topic, whose records are numbers."""

    dsn: str
    directory: Path
    model: SteeringModel = field(default_factory=SteeringModel)
    log: list[int] = field(default_factory=list)
    _seats: dict[int, _Seat] = field(default_factory=dict)
    _looking: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._looking = psycopg.connect(self.dsn)

    def close(self) -> None:
        """End every connection."""
        disarm_all()
        for place in list(self._seats):
            self.leave(place)
        self._looking.close()

    def leave(self, place: int) -> None:
        """Let whoever works there die; his connections end, and nothing else."""
        seat = self._seats.pop(place, None)
        if seat is not None:
            close(seat.driver)

    def is_taken(self, place: int) -> bool:
        return place in self._seats

    def has_staged(self, place: int) -> bool:
        return place in self._seats and self._seats[place].staged is not None

    def is_newest(self, place: int) -> bool:
        """Tell whether the newest claim was made there."""
        return place in self._seats and self._seats[place].epoch == self.model.epoch

    def claim(self, place: int, *, layout: HomeLayout | None = None) -> None:
        """Start a driver, of the version in force unless told otherwise.

        Raises:
            TallyweirError: As a driver's start does; then nothing has changed.
        """
        self.leave(place)
        driver = PostgresDriver(dsn=self.dsn, layout=layout or self.model.layout)
        self.model.epoch += 1
        assert driver.epoch == self.model.epoch
        self._seats[place] = _Seat(
            driver=driver,
            ids=StagedIds(self.dsn, self.directory),
            epoch=driver.epoch,
        )

    def stage(self, place: int, records: list[int]) -> None:
        """Plan a batch of so many records, which the topic gets if it has too few.

        Whoever is superseded may find out here, and then stops.
        """
        seat = self._seats[place]
        plan = seat.driver.plan(len(records))
        (covered,) = plan.ranges
        missing = covered.until_offset - len(self.log)
        self.log += records[len(records) - missing :] if missing > 0 else []
        try:
            vote = stage(seat.driver, plan, self.log, seat.ids)
        except TallyweirError:
            assert seat.epoch < self.model.epoch, "nobody has superseded it"
            self.leave(place)
            return
        tally = tally_votes([vote], plan.ranges, records_read=len(records))
        seat.staged = (plan, tally)

    def publish(self, place: int, *, dies: Side | None = None) -> None:
        """Publish what is staged; dies at one side of the decision, if told so.

        Only who made the newest claim may; all others are fenced.
        """
        seat = self._seats[place]
        assert seat.staged is not None
        plan, tally = seat.staged
        seat.staged = None
        is_newest = seat.epoch == self.model.epoch
        if dies is not None:
            arm(FaultPoint.DECISION_COMMITTED, _die, side=dies)
        try:
            outcome = seat.driver.publish(plan, tally)
        except KilledError:
            assert is_newest, "a superseded driver came to its decision"
            self.leave(place)
            if dies is Side.BEFORE:
                return
        except FencedError:
            assert not is_newest, "nobody has superseded it"
            self.leave(place)
            return
        else:
            assert is_newest, f"a superseded driver: {outcome}"
            assert outcome is PublishOutcome.COMMITTED
            again = seat.driver.publish(plan, tally)
            assert again is PublishOutcome.ALREADY_COMMITTED
        finally:
            disarm_all()
        (covered,) = plan.ranges
        self.model.publish(self.log, covered.length)

    def act(
        self,
        do: Callable[[Connection], object],
        *,
        dies_after: int | None = None,
        fences: bool = True,
    ) -> bool:
        """Do an act; tell whether it was done, for the model to follow.

        Args:
            do: The act.
            dies_after: Its connection is lost after so many statements.
            fences: Whether it claims.
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
        self.model.epoch += fences
        return True

    def check(self) -> None:
        """Hold the home against the model, and let the product's own audit judge."""
        self._check_standing(PIPELINE, self.model.standing)
        self._check_acts()
        if self.model.fork is not None:
            # Nobody works on it: it stays what it was made as.
            self._check_standing(FORK, self.model.fork, shadows="__numbers_2")

    def _check_standing(
        self, pipeline: str, standing: Standing, *, shadows: str = ""
    ) -> None:
        self._check_rows(standing, shadows)
        for fate, table in _ASIDE.items():
            assert standing.put_aside(fate) == self._fetch(
                f"SELECT kafka_offset, sequence FROM tallyweir.{table} "
                "WHERE pipeline = %s ORDER BY kafka_offset, sequence",
                pipeline,
            )
        assert self._fetch(_LEDGER, pipeline) == [
            (
                *(one.sequence, one.from_offset, one.until_offset),
                one.until_offset - one.from_offset,
                len(one.fates.committed),
                len(one.fates.duplicate),
                len(one.fates.dead),
            )
            for one in standing.batches
        ]
        assert self._fetch(_IDS, pipeline) == [
            (one.sequence, len(one.fates.committed))
            for one in standing.batches
            if one.fates.committed
        ]
        position = [] if standing.position is None else [(standing.position,)]
        assert position == self._fetch(
            "SELECT next_offset FROM tallyweir.partition_progress WHERE pipeline = %s",
            pipeline,
        )
        self._looking.commit()
        receipt = verify(self._looking, pipeline)
        assert not receipt.failed, receipt.failed
        self._looking.commit()

    def _check_rows(self, standing: Standing, shadows: str) -> None:
        rows = self._fetch(
            f"SELECT kafka_offset, number::integer FROM numbers{shadows} "
            "ORDER BY kafka_offset"
        )
        assert rows == standing.committed
        # Whatever the batches were: of the records read, each number counts once.
        read = {self.log[offset] for offset in standing.read}
        assert sorted(number for _, number in rows) == sorted(read - {0})
        windows = self._fetch(
            f"SELECT window_start, events FROM by_window{shadows} ORDER BY window_start"
        )
        assert windows == standing.windows

    def _check_acts(self) -> None:
        """Hold what is about all of it: claims, numbers, versions, snapshots."""
        model = self.model
        assert [(model.epoch,)] == self._fetch(
            "SELECT max(epoch) FROM tallyweir.epoch_claim WHERE pipeline = %s", PIPELINE
        )
        assert [(model.last_sequence,)] == self._fetch(
            "SELECT last_sequence FROM tallyweir.pipeline WHERE pipeline = %s", PIPELINE
        )
        in_force = (len(model.versions), True, model.layout.definition_hash)
        assert [in_force] == self._fetch(_IN_FORCE, PIPELINE)
        assert sorted(model.snapshots) == sorted(
            name for (name,) in self._fetch("SELECT name FROM tallyweir.snapshot")
        )

    def _fetch(self, query: str, *values: object) -> list[Row]:
        return self._looking.execute(query.encode(), values or None).fetchall()

    @property
    def other_layout(self) -> HomeLayout:
        """The version that is not in force."""
        return LAYOUTS[1 - self.model.versions[-1]]


def _die() -> None:
    raise KilledError
