"""Each cause is named from what was measured when it was staged for real, or none.

``integration_tests/operate/test_bottleneck.py`` stages them, which takes minutes, and
writes what it has measured until three batches were done into the folder that
``TALLYWEIR_RECORD_EVIDENCE`` names: here it is ``recorded``, beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tallyweir.sinks.diagnosis.batch_time import MeasuredBatch
from tallyweir.sinks.diagnosis.bottleneck import (
    BATCHES_MIN,
    Cause,
    ServerFacts,
    find_bottleneck,
)
from tallyweir.sinks.protocol.measures import Measures, StepMeasure, parse_measures

_RECORDED = Path(__file__).with_name("recorded")
_STAGED = [cause for cause in Cause if cause is not Cause.STEP]
_BY_MEASURES = [cause for cause in _STAGED if cause not in {Cause.LOCK, Cause.IN_DOUBT}]


def _evidence(cause: Cause) -> tuple[list[MeasuredBatch], ServerFacts]:
    file = _RECORDED / f"{cause.replace(' ', '-')}.json"
    recorded = json.loads(file.read_text())
    batches = [
        MeasuredBatch(**{**one, "measures": parse_measures(one["measures"])})
        for one in recorded["batches"]
    ]
    return batches, ServerFacts(**recorded["server"])


def _named(batches: list[MeasuredBatch], server: ServerFacts) -> Cause | None:
    found = find_bottleneck(batches, server)
    return None if found is None else found.cause


def _slower(batch: MeasuredBatch, times: float) -> MeasuredBatch:
    """Return a batch of which everything took so many times as long."""

    def scaled(seconds: Mapping[str, float]) -> dict[str, float]:
        return {name: times * value for name, value in seconds.items()}

    def step(one: StepMeasure) -> StepMeasure:
        return replace(
            one, seconds=times * one.seconds, seconds_max=times * one.seconds_max
        )

    measures: Measures = batch.measures
    return replace(
        batch,
        measures=replace(
            measures,
            steps={name: step(one) for name, one in measures.steps.items()},
            seconds=scaled(measures.seconds),
            task_seconds=tuple(times * one for one in measures.task_seconds),
        ),
    )


@pytest.mark.parametrize("cause", Cause)
def test_a_staged_cause_is_named_within_three_batches(cause: Cause) -> None:
    """From no more than was measured by then."""
    batches, server = _evidence(cause)
    assert len(batches) <= BATCHES_MIN
    assert _named(batches, server) is cause


@pytest.mark.parametrize("cause", _BY_MEASURES)
@pytest.mark.parametrize("hung", range(BATCHES_MIN))
def test_a_batch_that_hung_hides_no_cause(cause: Cause, hung: int) -> None:
    """Others may use the machine for a moment: one batch takes three times as long."""
    batches, server = _evidence(cause)
    batches[hung] = _slower(batches[hung], 3.0)
    assert _named(batches, server) is cause


@pytest.mark.parametrize("cause", _BY_MEASURES)
def test_a_slower_machine_hides_no_cause(cause: Cause) -> None:
    """Whatever takes most of the time there takes most of it here."""
    batches, server = _evidence(cause)
    assert _named([_slower(one, 3.0) for one in batches], server) is cause


@pytest.mark.parametrize("cause", [Cause.LOCK, Cause.IN_DOUBT])
def test_what_stops_a_pipeline_comes_before_what_slows_it(cause: Cause) -> None:
    """A lock on a pipeline whose Python is slow is a lock."""
    _, server = _evidence(cause)
    slow, _ = _evidence(Cause.SLOW_PYTHON)
    assert _named(slow, server) is cause
