"""Random histories of a pipeline that is steered while drivers compete for it.

Publishes, claims, deaths, snapshots, restores, resets, pauses, updates, rollbacks and
forks in any order on a real home, each held against a model; acts may lose their
connection before any of their statements. ``TALLYWEIR_STEERING_HISTORIES`` says how
many histories are tried, ``TALLYWEIR_STEERING_SEED`` which; the seed is printed.
"""

from __future__ import annotations

import os
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from integration_tests.harness.fresh_databases import copied_database
from integration_tests.harness.postgres_driver import PIPELINE, TP
from integration_tests.harness.steered_pipeline import broker_of
from integration_tests.harness.steered_world import FORK, SteeredWorld
from sinks.faultpoints import Side
from sinks.postgres import steering
from sinks.postgres.versions.version_claim import describe_layout
from sinks.protocol.errors import ConfigurationError, RetryableError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_STEPS = 30

_places = st.sampled_from([0, 1])
#: Few numbers, so that repeats are common; zero is a dead letter.
_records = st.lists(st.integers(0, 15), min_size=1, max_size=4)
#: Mostly whole; an act has some twenty statements, a restore some sixty.
_deaths = st.one_of(st.none(), st.none(), st.integers(0, 60))


class SteeringMachine(RuleBasedStateMachine):
    """Steers one pipeline on a home of its own."""

    def __init__(self, server_dsn: str, template: str) -> None:
        super().__init__()
        self._opened = ExitStack()
        dsn = self._opened.enter_context(copied_database(server_dsn, template))
        directory = self._opened.enter_context(tempfile.TemporaryDirectory())
        self.world = SteeredWorld(dsn=dsn, directory=Path(directory))
        self._opened.callback(self.world.close)
        self.model = self.world.model
        self._names = 0

    def teardown(self) -> None:
        self._opened.close()

    @initialize(records=_records)
    def begin(self, records: list[int]) -> None:
        """The first start makes version 1."""
        self.world.claim(0)
        self.world.stage(0, records)
        self.world.publish(0)

    @rule(place=_places)
    def claim(self, place: int) -> None:
        """A driver starts, and fences who works; a pause keeps it waiting."""
        if not self.model.is_paused:
            self.world.claim(place)
            return
        with pytest.raises(RetryableError, match="PAUSED"):
            self.world.claim(place)

    @rule(place=_places)
    def claim_with_the_other_file(self, place: int) -> None:
        """A supervisor has the file of a version that is not in force."""
        refused = (ConfigurationError, RetryableError)
        with pytest.raises(refused, match=r"VERSION_SUPERSEDED|UPDATE_NEEDED|PAUSED"):
            self.world.claim(place, layout=self.world.other_layout)

    @rule(place=_places, records=_records)
    def stage(self, place: int, records: list[int]) -> None:
        """A batch is planned and staged, by whoever is there, superseded or not."""
        if self.world.is_taken(place) and not self.world.has_staged(place):
            self.world.stage(place, records)

    @rule(place=_places, dies=st.sampled_from([None, None, None, *Side]))
    def publish(self, place: int, dies: Side | None) -> None:
        """What is staged is published, whatever was done meanwhile."""
        if self.world.has_staged(place):
            self.world.publish(place, dies=dies)

    @rule(place=_places, records=_records)
    def publish_whole(self, place: int, records: list[int]) -> None:
        """A batch from its plan to its commit."""
        self._work(place, records)

    def _work(self, place: int, records: list[int]) -> None:
        """Publish a batch, by a driver that starts if it has to."""
        if self.model.is_paused:
            return
        if not self.world.is_newest(place) or self.world.has_staged(place):
            self.world.claim(place)
        self.world.stage(place, records)
        self.world.publish(place)

    @rule(place=_places)
    def die(self, place: int) -> None:
        """A driver is gone."""
        self.world.leave(place)

    @rule(dies=_deaths)
    def take_snapshot(self, dies: int | None) -> None:
        """Nobody is fenced by it."""
        self._names += 1
        name = f"s{self._names}"
        if self.world.act(
            lambda home: steering.take_snapshot(home, PIPELINE, name, reason="a test"),
            dies_after=dies,
            fences=False,
        ):
            self.model.take(name)

    @precondition(lambda self: self.model.snapshots)
    @rule(data=st.data())
    def drop_snapshot(self, data: st.DataObject) -> None:
        """It is forgotten."""
        name = data.draw(st.sampled_from(sorted(self.model.snapshots)))
        self.world.act(
            lambda home: steering.drop_snapshot(home, PIPELINE, name), fences=False
        )
        del self.model.snapshots[name]

    @precondition(lambda self: self.model.snapshots)
    @rule(data=st.data(), dies=_deaths, records=_records)
    def restore(
        self, data: st.DataObject, dies: int | None, records: list[int]
    ) -> None:
        """All goes back, unless the version is another one; then a driver goes on."""
        name = data.draw(st.sampled_from(sorted(self.model.snapshots)))
        kept = self.model.snapshots[name]

        def restored() -> bool:
            return self.world.act(
                lambda home: steering.restore(
                    home, PIPELINE, name, broker_of(self.world.log), reason="a test"
                ),
                dies_after=dies,
            )

        if kept.version != self.model.versions[-1]:
            dies = None
            with pytest.raises(ConfigurationError, match="DEFINITION_SINCE"):
                restored()
        elif restored():
            self.model.restore(name)
            self.world.check()
            self._work(0, records)

    @precondition(lambda self: self.model.standing.position is not None)
    @rule(data=st.data(), dies=_deaths)
    def reset(self, data: st.DataObject, dies: int | None) -> None:
        """The position moves, forward or back; rows stay."""
        target = data.draw(st.integers(0, len(self.world.log)))

        def moved() -> bool:
            return self.world.act(
                lambda home: steering.reset_offsets(
                    home,
                    PIPELINE,
                    {TP: target},
                    broker_of(self.world.log),
                    reason="a test",
                ),
                dies_after=dies,
            )

        if target == self.model.standing.position:
            dies = None
            with pytest.raises(ConfigurationError, match="NOTHING_TO_RESET"):
                moved()
        elif moved():
            self.model.reset(target)

    @rule(dies=_deaths)
    def pause_or_resume(self, dies: int | None) -> None:
        """Whoever works is fenced, and nobody claims until the end of it."""
        if self.model.is_paused:
            self.world.act(lambda home: steering.resume(home, PIPELINE), fences=False)
            self.model.is_paused = False
        elif self.world.act(
            lambda home: steering.pause(home, PIPELINE, reason="a test"),
            dies_after=dies,
        ):
            self.model.is_paused = True

    @rule(dies=_deaths)
    def update(self, dies: int | None) -> None:
        """The other version comes into force, with what the windows hold."""
        wanted = describe_layout(self.world.other_layout)
        if self.world.act(
            lambda home: steering.update(home, self._change(), wanted),
            dies_after=dies,
        ):
            self.model.versions.append(1 - self.model.versions[-1])

    @precondition(lambda self: len(set(self.model.versions)) > 1)
    @rule(dies=_deaths)
    def roll_back(self, dies: int | None) -> None:
        """The newest version that is another one comes into force again."""
        versions = self.model.versions
        former = max(
            number
            for number, layout in enumerate(versions, start=1)
            if layout != versions[-1]
        )
        if self.world.act(
            lambda home: steering.rollback(home, self._change(), former),
            dies_after=dies,
        ):
            versions.append(1 - versions[-1])

    @precondition(lambda self: self.model.fork is None)
    @rule(dies=st.one_of(st.none(), st.integers(0, 150)))
    def fork(self, dies: int | None) -> None:
        """The pipeline and its drivers do not notice."""
        request = steering.ActRequest(pipeline=PIPELINE, kind="fork", reason="a test")
        if self.world.act(
            lambda home: steering.fork(home, request, FORK),
            dies_after=dies,
            fences=False,
        ):
            self.model.fork = self.model.standing

    def _change(self) -> steering.ChangeRequest:
        return steering.ChangeRequest(pipeline=PIPELINE, reason="a test")

    @invariant()
    def all_is_as_the_model_has_it(self) -> None:
        """After every step."""
        self.world.check()


@pytest.mark.parametrize("histories", [10, pytest.param(250, marks=pytest.mark.long)])
def test_every_history_of_a_steered_pipeline_is_as_the_model_has_it(
    server_dsn: str, home_dsn: str, histories: int
) -> None:
    """In what stands, each event counts once; one version is in force."""
    asked = os.environ.get("TALLYWEIR_STEERING_SEED")
    chosen = random.randrange(2**32) if asked is None else int(asked)
    print(f"TALLYWEIR_STEERING_SEED={chosen}")  # noqa: T201

    @seed(chosen)
    class Machine(SteeringMachine):
        def __init__(self) -> None:
            super().__init__(server_dsn, home_dsn)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("TALLYWEIR_STEERING_HISTORIES", histories)),
            stateful_step_count=_STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
