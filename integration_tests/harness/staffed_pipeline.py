"""A steered pipeline, places for its drivers, and its model.

Every step is done to the home by the product's own code and to the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from integration_tests.harness.fresh_databases import KilledError, close
from integration_tests.harness.postgres_driver import PostgresDriver
from integration_tests.harness.steered_pipeline import (
    StagedIds,
    stage,
    steered_layout,
)
from integration_tests.harness.steering_model import SteeringModel
from tallyweir.sinks.faultpoints import FaultPoint, Side, arm, disarm_all
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.tables.shadow_tables import find_shadow_tables
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FencedError, TallyweirError
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally, tally_votes


@dataclass(kw_only=True)
class _Seat:
    """A driver, and the batch that it has staged."""

    driver: PostgresDriver
    ids: StagedIds
    epoch: int
    staged: tuple[BatchPlan, BatchTally] | None = None


@dataclass(kw_only=True)
class StaffedPipeline:
    """One pipeline; ``log`` is its topic, whose records are numbers."""

    dsn: str
    directory: Path
    model: SteeringModel
    log: list[int]
    _seats: dict[int, _Seat] = field(default_factory=dict)

    def close(self) -> None:
        """Let everybody die."""
        for place in list(self._seats):
            self.leave(place)

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

    def claim(self, place: int, *, layout: PipelineLayout | None = None) -> None:
        """Start a driver, of the version in force unless told otherwise.

        It looks for its tables as drivers do.

        Raises:
            TallyweirError: As a driver's start does; then nothing has changed.
        """
        self.leave(place)
        if layout is None:
            shadows = find_shadow_tables(self.dsn, self.model.name)
            version = self.model.versions[-1]
            layout = steered_layout(version, pipeline=self.model.name, shadows=shadows)
        driver = PostgresDriver(dsn=self.dsn, layout=layout)
        self.model.epoch += 1
        assert driver.epoch == self.model.epoch
        self._seats[place] = _Seat(
            driver=driver,
            ids=StagedIds(self.dsn, self.model.name, self.directory),
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

    def work(self, place: int, records: list[int]) -> None:
        """Publish a batch, by a driver that starts if it has to; not in a pause."""
        if self.model.is_paused:
            return
        if not self.is_newest(place) or self.has_staged(place):
            self.claim(place)
        self.stage(place, records)
        self.publish(place)


def _die() -> None:
    raise KilledError
