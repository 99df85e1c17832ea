"""Whatever a pipeline redacts is in none of the rows that are kept of its steps."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.pipeline.redaction import find_redaction
from tallyweir.sinks.protocol.samples import Samples, join_samples, samples_json
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.sampling import (
    Sampling,
    sample_events,
    sample_results,
    sample_staged,
    sampling_of,
)
from tallyweir.spark_jobs.task.tests import sampled_people as people

_ROWS = 4


def _sampling(*redact: str, samples: int = 3) -> Sampling:
    pipeline = people.pipeline(samples=samples, redact=redact)
    redaction = find_redaction(pipeline, people.contracts(), people.ADDED)
    found = sampling_of(pipeline, people.contracts(), redaction, people.ADDED)
    assert found is not None
    return found


def _sample(sampling: Sampling, events: ClassifiedEvents) -> Samples:
    is_event = np.ones(len(events.classes), dtype=np.bool_)
    return sample_events(sampling, events, is_event, people.contracts(), people.PLACES)


def _everything_kept(sampling: Sampling, events: ClassifiedEvents) -> Samples:
    def kept() -> Iterator[Samples]:
        yield _sample(sampling, events)
        for table, rows in people.staged(_ROWS).items():
            steps = sample_staged(sampling, people.LAYOUT, table, rows)
            yield Samples(limit=sampling.limit, steps=steps)
        for output, results in people.results(_ROWS):
            yield sample_results(sampling, output, results)

    return join_samples(kept())


@given(
    redact=st.sets(st.sampled_from(people.NAMES)),
    classes=st.lists(st.sampled_from(EventClass), min_size=_ROWS, max_size=_ROWS),
    samples=st.integers(1, 5),
)
def test_no_redacted_value_is_in_what_is_kept(
    redact: set[str], classes: list[EventClass], samples: int
) -> None:
    """Nor under another name: computed, looked up, predicted, aggregated or paired."""
    events = people.events(_ROWS)
    events.classes[:] = classes
    sampling = _sampling(*sorted(redact), samples=samples)
    kept = json.dumps(samples_json(_everything_kept(sampling, events)))
    values = {
        name
        for name in (*people.FIELDS, *(f"address.{part}" for part in people.PARTS))
        if name in redact or name.partition(".")[0] in redact
    }
    leaked = [name for name in values if f"<{name}:" in kept]
    assert not leaked


@given(redact=st.sets(st.sampled_from(people.NAMES)))
def test_what_is_not_redacted_is_kept(redact: set[str]) -> None:
    """Fields of events, so that a rule that hides all would be noticed."""
    events = people.events(_ROWS)
    kept = json.dumps(
        samples_json(_everything_kept(_sampling(*sorted(redact)), events))
    )
    for name in people.FIELDS:
        assert (people.token(name, _ROWS - 1) in kept) == (name not in redact)


def test_without_a_rule_all_columns_are_shown() -> None:
    """And those of our own never are."""
    kept = _everything_kept(_sampling(), people.events(_ROWS))
    shown = {
        (one.step, one.output): [name for name, _ in one.rows[0].fields]
        for one in kept.steps
    }
    assert all(not one.redacted for one in kept.steps)
    fields = [*people.FIELDS, "address", "at"]
    assert shown["decode", ""] == fields
    computed = [*fields, *people.COMPUTE]
    assert shown["compute", ""] == computed
    assert shown["validate", ""] == computed
    assert shown["predict", ""] == [*computed, "owner", "street", "copied", "score"]
    assert shown["stage", "by_city"] == [
        *("window_start", "window_end", "city", "events"),
        *("last_mail.max", "at_home.max", "notes.max"),
    ]
    assert shown["stage", "letters"] == ["email", "Note"]
    assert shown["keys", "totals"] == ["city", "guess"]


def test_a_field_takes_along_what_is_computed_of_it() -> None:
    """Each sample says what it does not show."""
    kept = _everything_kept(_sampling("email"), people.events(_ROWS))
    redacted = {(one.step, one.output): one.redacted for one in kept.steps}
    assert redacted["decode", ""] == ("email",)
    assert set(redacted["predict", ""]) == {
        *("email", "lower", "mailed"),
        *("owner", "street", "copied", "score", "m_version"),
    }
    assert redacted["compute", ""] == ("email", "lower", "mailed")
    assert redacted["stage", "by_city"] == ("last_mail",)
    assert redacted["keys", "pairs"] == ("left_mail",)
    assert redacted["keys", "totals"] == ("guess",)


def test_a_part_of_a_field_is_left_out_alone() -> None:
    """What is computed of the field may be computed of that part."""
    kept = _everything_kept(_sampling("address.street"), people.events(_ROWS))
    steps = {(one.step, one.output): one for one in kept.steps}
    decoded = dict(steps["decode", ""].rows[0].fields)
    assert decoded["address"] == json.dumps({"town": "<address.town:3>"})
    assert steps["decode", ""].redacted == ("address.street",)
    assert steps["compute", ""].redacted == ("address.street", "housed")
    assert steps["stage", "by_city"].redacted == ("at_home",)


def test_the_times_of_windows_go_with_the_events_time() -> None:
    """A session begins and ends with an event."""
    kept = _everything_kept(_sampling("at"), people.events(_ROWS))
    (windows,) = (one for one in kept.steps if one.output == "by_city")
    assert windows.redacted == ("window_start", "window_end")


def test_the_keys_of_outputs_are_hidden_by_the_same_rule() -> None:
    """So hot keys do not tell them, whatever else is shown."""
    pipeline = people.pipeline(samples=0, redact=("city",))
    redaction = find_redaction(pipeline, people.contracts(), people.ADDED)
    assert redaction.keys == {"by_city", "pairs", "totals"}
    assert sampling_of(pipeline, people.contracts(), redaction, people.ADDED) is None
