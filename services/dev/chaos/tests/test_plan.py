"""A plan is its seed's, and spreads the faults over the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallyweir.services.dev.chaos.plan import (
    HOME,
    ChaosOptions,
    EventFormat,
    Kind,
    count_kinds,
    kinds_in,
    write_plan,
)


def options(*, kills: int = 40, seed: int = 7, databases: int = 3) -> ChaosOptions:
    """Whatever the test does not say."""
    return ChaosOptions(kills=kills, events=10_000, seed=seed, databases=databases)


def test_a_seed_gives_the_same_plan_again_and_another_seed_another() -> None:
    """A failing seed can be run again."""
    plan = write_plan(options(), records=11_500)

    assert plan == write_plan(options(), records=11_500)
    assert plan != write_plan(options(seed=8), records=11_500)


@pytest.mark.parametrize("event_format", EventFormat)
def test_each_kind_comes_once_before_any_comes_twice(event_format: EventFormat) -> None:
    """A short run is as varied as it can be; a run without a registry spares it."""
    chosen = replace(options(), event_format=event_format)
    plan = write_plan(chosen, records=11_500)
    kinds = kinds_in(event_format)

    assert {one.kind for one in plan.injections[: len(kinds)]} == set(kinds)
    assert {one.kind for one in plan.injections} == set(kinds)
    assert (Kind.REGISTRY_WIPE in kinds) == (event_format is EventFormat.REGISTRY)
    assert sum(count_kinds(plan.injections).values()) == 40


def test_the_faults_are_spread_over_what_is_read() -> None:
    """One fault in each stage, and a tenth left for those that miss at first."""
    plan = write_plan(options(), records=11_500)

    for one in plan.injections:
        assert one.number / 46 < one.progress < (one.number + 1) / 46
    assert plan.stage_records == 11_500 // 46


def test_every_database_suffers() -> None:
    """Servers and networks of participants are hit as well as home's."""
    for kind in (Kind.POSTGRES_STOP, Kind.NETWORK_CUT):
        injections = write_plan(options(kills=300), records=11_500).injections
        hit = {one.database for one in injections if one.kind is kind}
        assert hit == {HOME, "p1", "p2"}


def test_only_a_cut_says_where_to_cut() -> None:
    """Every other kind has no message to cut at."""
    for one in write_plan(options(), records=11_500).injections:
        assert (one.cut is not None) == (one.kind is Kind.NETWORK_CUT)
