"""Made-up events fit their contracts and are repeatable."""

from __future__ import annotations

import datetime as dt
from itertools import islice

import pytest

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.services.local.datasets.made_up import DATASETS
from tallyweir.services.local.templates.template import read_template
from tallyweir.services.produce.source_section import read_source_section

_NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_LIVE = sorted(set(DATASETS) - {"flights"})


def _contract(name: str) -> Contract:
    """Load the contract of a data set; a template names the fields of the last one."""
    if name == "json_orders":
        file = read_template("json-orders").file
        return load_contract(read_source_section(file).choose_schema(None), file)
    return load_contract(DATASETS[name].contract)


@pytest.mark.parametrize("name", _LIVE)
def test_made_up_events_fit_their_contract(name: str) -> None:
    """They decode to what they were, happened just before now, and have own IDs."""
    dataset = DATASETS[name]
    contract = _contract(name)
    (time_field,) = (f.name for f in contract.fields if f.type == "timestamp-micros")
    id_field = contract.fields[0].name
    events = list(islice(dataset.events(7, lambda: _NOW), 500))
    for event in events:
        payload = encode(contract, event)
        assert decode(payload, {contract.schema_id: contract}) == event
        happened = event[time_field]
        assert isinstance(happened, dt.datetime)
        assert dt.timedelta() <= _NOW - happened <= dt.timedelta(seconds=2)
    assert len({event[id_field] for event in events}) == len(events)


@pytest.mark.parametrize("name", _LIVE)
def test_a_seed_gives_the_same_events(name: str) -> None:
    """And another seed others."""
    events = DATASETS[name].events
    first, again, other = (
        list(islice(events(seed, lambda: _NOW), 50)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", _LIVE)
def test_another_start_gives_other_ids(name: str) -> None:
    """Or the second start's events would be conflicts with those of the first."""
    dataset = DATASETS[name]
    id_field = _contract(name).fields[0].name
    first, later = (
        {event[id_field] for event in islice(dataset.events(7, clock), 50)}
        for clock in (lambda: _NOW, lambda: _NOW + dt.timedelta(microseconds=1))
    )
    assert not first & later
