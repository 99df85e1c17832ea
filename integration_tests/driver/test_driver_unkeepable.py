"""Events that windows, functions and joins cannot keep, through a real driver."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.readings import (
    READING,
    Sent,
    reading,
    sent,
    write_contract,
)
from tallyweir.schemas.codec import encode
from tallyweir.sinks.postgres.outputs.key_text import KEY_BYTES_MAX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_KEYED = """
from datetime import timedelta
from tallyweir import (
    Aggregate, AggregateFunction, Append, Join, JoinSide, MapState,
    Pipeline, Source, Window, stateful,
)
from tallyweir import Fixed

#: As long as a name may be beside the longest key, and no shorter in an index.
LONG = {long!r}


@stateful(
    table="totals",
    key=["sensor"],
    columns={{"events": "bigint"}},
    state={{"seen": MapState()}},
)
def totals(key, events, state, timers, watermark):
    state["seen"][LONG] = events.num_rows
    timers.set_event_time(LONG, events["at"][0].as_py() + timedelta(days=1))
    yield {{"events": events.num_rows}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(
        Append(table="readings"),
        totals,
        Join(
            table="pairs",
            on=("sensor",),
            within=timedelta(hours=1),
            left=JoinSide(where="amount = 1", select={{"first": "event_id"}}),
            right=JoinSide(where="amount = 2", select={{"second": "event_id"}}),
        ),
        Window(
            table="by_site",
            windows=Fixed(size=timedelta(hours=1)),
            by=("site",),
            aggregates=(Aggregate(column="n", function=AggregateFunction.COUNT),),
            where="amount < 50",
        ),
    ),
)
"""
_LETTERS = string.ascii_letters + string.digits
#: What ``["…"]`` puts around a key's text.
_PUNCTUATION = 4
#: What drivers do with small batches: they stage them, or Spark's tasks do.
_STAGED_BY = [
    pytest.param("1000", id="driver", marks=pytest.mark.long),
    pytest.param("0", id="tasks"),
]


def _incompressible(size: int) -> str:
    """Make text that Postgres stores as long as it is."""
    return "".join(random.Random(size).choices(_LETTERS, k=size))


@pytest.mark.parametrize("staged_by", _STAGED_BY)
def test_a_key_that_no_index_takes_is_a_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, staged_by: str
) -> None:
    """The longest that fits is kept, with the longest names beside it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    long = _incompressible(256)
    write_python_pipeline(world, _KEYED.replace("{long!r}", repr(long)))
    fits = _incompressible(KEY_BYTES_MAX - _PUNCTUATION)
    group = _incompressible(KEY_BYTES_MAX)
    fate = "KEY_TOO_LONG"

    def one(event_id: str, **fields: object) -> Sent:
        return sent(world.contract, event_id=event_id, **fields)  # type: ignore[arg-type]

    records = world.topic.send(
        [
            one("a", sensor=fits, amount=1),
            one("b", sensor=fits, amount=2, partition=1),
            one("c", sensor=fits + "x", amount=1, fate=fate),
            one("d", site=group),
            one("e", site=group + "x", fate=fate, partition=1),
            # Far too long, and yet nobody's group: the window does not want it.
            one("f", site=_incompressible(9_000), amount=99),
            one("g", sensor=_incompressible(9_000), amount=99, fate=fate),
        ]
    )
    world.run_to_the_end(environment={"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": staged_by})
    world.assert_fates(records)
    assert [("a", "b")] == world.fetch("SELECT first, second FROM pairs")
    assert [(None, 2), (group, 1)] == world.fetch(
        "SELECT site, n FROM by_site ORDER BY site NULLS FIRST"
    )
    kept = "SELECT key::json ->> 0 FROM tallyweir.{} WHERE {} = %s ORDER BY 1"
    for query in (
        kept.format("keyed_state", "entry"),
        kept.format("keyed_timer", "name"),
    ):
        assert {"s1", fits} == {key for (key,) in world.fetch(query, long)}
    # A dead letter has claimed no ID: repaired, the event counts.
    again = world.topic.send([one("c", sensor="s1", amount=1)])
    world.run_to_the_end()
    world.assert_fates({**records, **again})


_TAGGED = {
    **READING,
    "fields": [
        *READING["fields"],  # type: ignore[misc]
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
_JOIN = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings, columns: [event_id]}}
      - join:
          table: pairs
          on: [sensor]
          within: 1 hour
          left: {{where: amount = 1, select: {{first: event_id, tags: tags}}}}
          right: {{where: amount = 2, select: {{second: event_id}}}}
"""
)


@pytest.mark.parametrize("staged_by", _STAGED_BY)
def test_a_nested_value_that_jsonb_refuses_is_a_dead_letter_of_a_join(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, staged_by: str
) -> None:
    """A backslash before the digits is none, and others are not held to it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    contract = write_contract(tmp_path / "reading.v1.avsc", _TAGGED)
    world.write_pipeline(_JOIN)

    def one(event_id: str, amount: int, tag: str, fate: str = "committed") -> Sent:
        record = {**reading(event_id=event_id, amount=amount), "tags": ["x", tag]}
        return Sent(value=encode(contract, record), partition=amount % 2, fate=fate)

    records = world.topic.send(
        [
            one("zero", 1, "a\0b", fate="UNSTORABLE_VALUE"),
            one("digits", 1, r"a\u0000b"),
            one("partner", 2, ""),
            # On no side of the join.
            one("other", 3, "a\0b"),
        ]
    )
    world.run_to_the_end(environment={"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": staged_by})
    world.assert_fates(records)
    assert [("digits", "partner", ["x", r"a\u0000b"])] == world.fetch(
        "SELECT first, second, tags FROM pairs"
    )


def test_a_driver_does_not_group_windows_by_a_field_with_parts(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """It says so when it starts, and not with each batch."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_contract(tmp_path / "reading.v1.avsc", _TAGGED)
    world.write_pipeline(
        SOURCE
        + """
    outputs:
      - window: {{table: w, fixed: 1 hour, by: [tags], aggregate: {{n: count(*)}}}}
"""
    )
    driver = world.run_to_the_end(code=78)
    assert "PIPELINE_COLUMN_TYPE" in driver.text
    assert "'tags' is of type array" in driver.text
