"""What is shown of each part of the newest batches."""

from __future__ import annotations

import pytest

from tallyweir.sinks.diagnosis.batch_time import MeasuredBatch, PartFigures
from tallyweir.sinks.protocol.measures import Measures, StepMeasure


def _batch(decode_s: float) -> MeasuredBatch:
    measures = Measures(
        seconds={
            "between": 0.0,
            "plan": 0.0,
            "stage": 1.0,
            "wait": 0.0,
            "publish": 0.5,
            "publish_rows": 0.5,
        },
        steps={
            "read": StepMeasure(seconds=0.2, seconds_max=0.2, rows_out=100, bytes=800),
            "decode": StepMeasure(
                seconds=decode_s, seconds_max=decode_s, rows_in=100, cpu_seconds=0.1
            ),
        },
        task_seconds=(1.0,),
        slots=1,
    )
    return MeasuredBatch(sequence=1, read=100, committed=100, dead=0, measures=measures)


def test_a_part_has_the_time_of_its_batches() -> None:
    """Of twenty batches the slowest is the one in twenty that is slower."""
    batches = [_batch(0.1)] * 18 + [_batch(0.4), _batch(0.8)]
    figures = {one.step: one for one in PartFigures(batches).of_parts()}
    decode = figures["decode"]
    assert (decode.p50_s, decode.p95_s) == (0.1, 0.4)
    assert decode.rows_per_s == pytest.approx(2_000 / 3.0)
    assert decode.cpu_s is not None
    assert 0.14 < decode.share < 0.16
    assert figures["read"].bytes == 800


def test_what_nobody_waits_for_has_no_share() -> None:
    """Publishing takes half a second beside the staging of the next batch."""
    publish = PartFigures([_batch(0.1)]).of_boxes()["publish"]
    assert (publish.p50_s, publish.share) == (0.5, 0.0)
    assert publish.rows_per_s == 200


def test_a_box_has_the_time_of_all_its_parts() -> None:
    """The rows are those that went through it, and count once."""
    decode = PartFigures([_batch(0.3)]).of_boxes()["decode"]
    assert decode.p50_s == 0.5
    assert decode.rows_per_s == 200


def test_no_batches_have_no_figures() -> None:
    """A pipeline that has published nothing."""
    assert PartFigures([]).of_parts() == ()
    assert PartFigures([]).of_boxes() == {}
