"""Random histories of a pipeline and its fork, steered while drivers compete for them.

Publishes, claims, deaths, snapshots, restores, resets, pauses, updates, rollbacks, a
fork and switches in any order on a real home, each held against a model; acts may lose
their connection before any of their statements. ``TALLYWEIR_STEERING_HISTORIES`` says
how many histories are tried, ``TALLYWEIR_STEERING_SEED`` which; the seed is printed.
"""

from __future__ import annotations

import os
import random
import tempfile
from contextlib import ExitStack
from dataclasses import replace
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
from integration_tests.harness.staffed_pipeline import StaffedPipeline
from integration_tests.harness.steered_pipeline import broker_of
from integration_tests.harness.steered_world import FORK, SteeredWorld
from integration_tests.harness.steering_model import SteeringModel
from tallyweir.sinks.faultpoints import Side
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_STEPS = 30

#: The fork is its pipeline until there is one.
_pipelines = st.sampled_from([PIPELINE, FORK])
_places = st.sampled_from([0, 1])
#: Few numbers, so that repeats are common; zero is a dead letter.
_records = st.lists(st.integers(0, 15), min_size=1, max_size=4)
#: Mostly whole; an act has some twenty statements, a restore some sixty.
_deaths = st.one_of(st.none(), st.none(), st.integers(0, 60))
#: A fork and a switch have more than a hundred.
_late_deaths = st.one_of(st.none(), st.integers(0, 150))


class SteeringMachine(RuleBasedStateMachine):
    """Steers one pipeline, and a fork of it, on a home of their own."""

    def __init__(self, server_dsn: str, template: str) -> None:
        super().__init__()
        self._opened = ExitStack()
        dsn = self._opened.enter_context(copied_database(server_dsn, template))
        directory = self._opened.enter_context(tempfile.TemporaryDirectory())
        self.world = SteeredWorld(dsn=dsn, directory=Path(directory))
        self._opened.callback(self.world.close)
        self._names = 0

    def teardown(self) -> None:
        self._opened.close()

    def _of(self, pipeline: str) -> StaffedPipeline:
        return self.world.pipelines.get(pipeline, self.world.first)

    @initialize(records=_records)
    def begin(self, records: list[int]) -> None:
        """The first start makes version 1."""
        self.world.first.work(0, records)

    @rule(pipeline=_pipelines, place=_places)
    def claim(self, pipeline: str, place: int) -> None:
        """A driver starts, and fences who works; a pause keeps it waiting."""
        one = self._of(pipeline)
        if not one.model.is_paused:
            one.claim(place)
            return
        with pytest.raises(RetryableError, match="PAUSED"):
            one.claim(place)

    @rule(pipeline=_pipelines, place=_places)
    def claim_with_the_other_file(self, pipeline: str, place: int) -> None:
        """A supervisor has the file of a version that is not in force."""
        one = self._of(pipeline)
        refused = (ConfigurationError, RetryableError)
        with pytest.raises(refused, match=r"VERSION_SUPERSEDED|UPDATE_NEEDED|PAUSED"):
            one.claim(place, layout=one.model.other_layout)

    @precondition(lambda self: FORK in self.world.pipelines)
    @rule(pipeline=_pipelines, place=_places)
    def claim_with_the_other_tables(self, pipeline: str, place: int) -> None:
        """A driver has looked for its tables before they changed places."""
        one = self._of(pipeline)
        elsewhere = replace(one.model, is_in_front=not one.model.is_in_front)
        with pytest.raises(RetryableError, match="TABLES_SWITCHED"):
            one.claim(place, layout=elsewhere.layout)

    @rule(pipeline=_pipelines, place=_places, records=_records)
    def stage(self, pipeline: str, place: int, records: list[int]) -> None:
        """A batch is planned and staged, by whoever is there, superseded or not."""
        one = self._of(pipeline)
        if one.is_taken(place) and not one.has_staged(place):
            one.stage(place, records)

    @rule(
        pipeline=_pipelines,
        place=_places,
        dies=st.sampled_from([None, None, None, *Side]),
    )
    def publish(self, pipeline: str, place: int, dies: Side | None) -> None:
        """What is staged is published, whatever was done meanwhile."""
        one = self._of(pipeline)
        if one.has_staged(place):
            one.publish(place, dies=dies)

    @rule(pipeline=_pipelines, place=_places, records=_records)
    def publish_whole(self, pipeline: str, place: int, records: list[int]) -> None:
        """A batch from its plan to its commit."""
        self._of(pipeline).work(place, records)

    @rule(pipeline=_pipelines, place=_places)
    def die(self, pipeline: str, place: int) -> None:
        """A driver is gone."""
        self._of(pipeline).leave(place)

    @rule(pipeline=_pipelines, dies=_deaths)
    def take_snapshot(self, pipeline: str, dies: int | None) -> None:
        """Nobody is fenced by it."""
        self._names += 1
        name = f"s{self._names}"
        model = self._of(pipeline).model
        done = self.world.act(
            lambda home: steering.take_snapshot(
                home, model.name, name, reason="a test"
            ),
            dies_after=dies,
            fences=(),
        )
        # A statement after the COMMIT lets go of the lock: a connection that is lost
        # there leaves the snapshot.
        if done or name in self.world.kept_snapshots(model.name):
            model.take(name)

    def _snapshots(self) -> list[tuple[SteeringModel, str]]:
        models = [one.model for one in self.world.pipelines.values()]
        return [(model, name) for model in models for name in sorted(model.snapshots)]

    @precondition(lambda self: self._snapshots())
    @rule(data=st.data())
    def drop_snapshot(self, data: st.DataObject) -> None:
        """It is forgotten."""
        model, name = data.draw(st.sampled_from(self._snapshots()))
        self.world.act(
            lambda home: steering.drop_snapshot(home, model.name, name), fences=()
        )
        del model.snapshots[name]

    @precondition(lambda self: self._snapshots())
    @rule(data=st.data(), dies=_deaths, records=_records)
    def restore(
        self, data: st.DataObject, dies: int | None, records: list[int]
    ) -> None:
        """All goes back, unless it is about something else; then a driver goes on."""
        model, name = data.draw(st.sampled_from(self._snapshots()))
        refusal = model.refusal(name)

        def restored() -> bool:
            return self.world.act(
                lambda home: steering.restore(
                    home, model.name, name, broker_of(self.world.log), reason="a test"
                ),
                dies_after=None if refusal else dies,
                fences=(model.name,),
            )

        if refusal:
            with pytest.raises(ConfigurationError, match=refusal):
                restored()
        elif restored():
            model.restore(name)
            self.world.check()
            self._of(model.name).work(0, records)

    @rule(pipeline=_pipelines, data=st.data(), dies=_deaths)
    def reset(self, pipeline: str, data: st.DataObject, dies: int | None) -> None:
        """The position moves, forward or back; rows stay."""
        model = self._of(pipeline).model
        target = data.draw(st.integers(0, len(self.world.log)))
        is_there = target == model.standing.position

        def moved() -> bool:
            return self.world.act(
                lambda home: steering.reset_offsets(
                    home,
                    model.name,
                    {TP: target},
                    broker_of(self.world.log),
                    reason="a test",
                ),
                dies_after=None if is_there else dies,
                fences=(model.name,),
            )

        if is_there:
            with pytest.raises(ConfigurationError, match="NOTHING_TO_RESET"):
                moved()
        elif moved():
            model.reset(target)

    @rule(pipeline=_pipelines, dies=_deaths)
    def pause_or_resume(self, pipeline: str, dies: int | None) -> None:
        """Whoever works is fenced, and nobody claims until the end of it."""
        model = self._of(pipeline).model
        if model.is_paused:
            self.world.act(lambda home: steering.resume(home, model.name), fences=())
            model.is_paused = False
        elif self.world.act(
            lambda home: steering.pause(home, model.name, reason="a test"),
            dies_after=dies,
            fences=(model.name,),
        ):
            model.is_paused = True

    @rule(pipeline=_pipelines, dies=_deaths)
    def update(self, pipeline: str, dies: int | None) -> None:
        """The other version comes into force, with what the windows hold."""
        model = self._of(pipeline).model
        wanted = describe_layout(model.other_layout)
        if self.world.act(
            lambda home: steering.update(home, _change(model), wanted),
            dies_after=dies,
            fences=(model.name,),
        ):
            model.change_version()

    @rule(pipeline=_pipelines, dies=_deaths)
    def roll_back(self, pipeline: str, dies: int | None) -> None:
        """The newest version that is another one comes into force again."""
        model = self._of(pipeline).model
        versions = model.versions
        others = [
            number
            for number, layout in enumerate(versions, start=1)
            if layout != versions[-1]
        ]
        if others and self.world.act(
            lambda home: steering.rollback(home, _change(model), others[-1]),
            dies_after=dies,
            fences=(model.name,),
        ):
            model.change_version()

    @precondition(lambda self: FORK not in self.world.pipelines)
    @rule(dies=_late_deaths)
    def fork(self, dies: int | None) -> None:
        """The pipeline and its drivers do not notice."""
        request = steering.ActRequest(pipeline=PIPELINE, kind="fork", reason="a test")
        if self.world.act(
            lambda home: steering.fork(home, request, FORK), dies_after=dies, fences=()
        ):
            self.world.add_fork()

    @precondition(lambda self: FORK in self.world.pipelines)
    @rule(catches_up=st.booleans(), dies=_late_deaths)
    def switch(self, *, catches_up: bool, dies: int | None) -> None:
        """Readers find the other's rows, unless that one has read less."""
        front, other = self.world.in_order()
        missing = front.model.standing.reach - other.model.standing.next_offset
        if catches_up and missing > 0:
            other.work(0, [0] * missing)
        is_behind = other.model.standing.reach < front.model.standing.reach

        def switched() -> bool:
            return self._switch(front, other, None if is_behind else dies)

        if is_behind:
            with pytest.raises(RetryableError, match="SWITCH_BEHIND"):
                switched()
        elif switched():
            front.model.switch(other.model)

    @precondition(lambda self: FORK in self.world.pipelines)
    @rule()
    def switch_the_wrong_way(self) -> None:
        """The one that readers find has no shadows to put in the other's place."""
        front, other = self.world.in_order()
        with pytest.raises(ConfigurationError, match="SWITCH_NOT_SHADOWED"):
            self._switch(other, front)

    def _switch(
        self,
        front: StaffedPipeline,
        other: StaffedPipeline,
        dies_after: int | None = None,
    ) -> bool:
        names = (front.model.name, other.model.name)
        request = steering.ActRequest(pipeline=names[0], kind="switch", reason="a test")
        return self.world.act(
            lambda home: steering.switch(home, request, names[1]),
            dies_after=dies_after,
            fences=names,
        )

    @invariant()
    def all_is_as_the_models_have_it(self) -> None:
        """After every step."""
        self.world.check()


def _change(model: SteeringModel) -> steering.ChangeRequest:
    return steering.ChangeRequest(pipeline=model.name, reason="a test")


@pytest.mark.parametrize("histories", [5, pytest.param(250, marks=pytest.mark.long)])
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
