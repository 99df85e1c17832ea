"""What becomes of open windows when another version comes into force."""

from __future__ import annotations

from typing import Any

import pytest

from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge, HeldWindows
from tallyweir.sinks.postgres.versions.tests.laid_out_versions import (
    COUNTED,
    HOUR_US,
    codes,
    compare,
    fates,
    holdings,
    version,
    windows,
)
from tallyweir.sinks.postgres.versions.version_plan import PlannedFate, PlanVerdict
from tallyweir.sinks.protocol.errors import ConfigurationError


def test_an_added_aggregate_leaves_open_windows_their_counts() -> None:
    """Its state follows the names of the aggregates, not their places."""
    former = windows("views=count(*)")
    wanted = windows("buys=count_if(bought)", "views=count(*)")
    plan = compare(
        version(former),
        version(wanted),
        holdings(former, open_rows=2, begun_through_us=5),
    )
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert PlannedFate.MIGRATED is fates(plan)["windows"]
    assert {"buys": 5} == plan.held.windows["by_page"].known_after_us
    state = [one.partition('" ')[2] for one in plan.ddl if "tallyweir_state" in one]
    assert [
        'RENAME COLUMN "tallyweir_a0_count" TO "passing_tallyweir_a0_count"',
        'RENAME COLUMN "passing_tallyweir_a0_count" TO "tallyweir_a1_count"',
        'ADD COLUMN "tallyweir_a0_count" bigint',
    ] == state
    assert any("by_page_revisions" in one for one in plan.ddl)


def test_an_aggregate_added_before_any_window_is_known_to_all() -> None:
    """There is nothing that it could have missed."""
    former = windows("views=count(*)")
    wanted = windows("views=count(*)", "buys=count_if(bought)")
    plan = compare(version(former), version(wanted), holdings(former))
    assert {} == plan.held.windows


def test_of_sessions_the_last_end_counts() -> None:
    """One that begins when the last that had begun ends has missed nothing."""
    sessions = {"windows": {"gap_us": 10}}
    former = windows("views=count(*)", **sessions)
    wanted = windows("views=count(*)", "buys=count_if(b)", **sessions)
    held = holdings(former, begun_through_us=500)
    plan = compare(version(former), version(wanted), held)
    assert {"buys": 499} == plan.held.windows["by_page"].known_after_us


def test_what_windows_do_not_know_outlives_the_next_version() -> None:
    """They are open as long as they were."""
    by_page = windows("views=count(*)", "buys=count_if(b)")
    known = HeldWindows(closed_through_us=3, known_after_us={"buys": 5})
    held = HeldKnowledge(ids_from_us=2, windows={"by_page": known})
    wanted = version(by_page, definition={"filter": "x"})
    plan = compare(version(by_page), wanted, holdings(by_page), held)
    assert held == plan.held
    assert held == HeldKnowledge.from_json(held.to_json())


def test_a_removed_aggregate_shows_nothing_that_was_true_once() -> None:
    """Rows that go on lose its value; final ones keep it."""
    former = windows("views=count(*)", "buys=count_if(b)")
    plan = compare(
        version(former), version(windows("views=count(*)")), holdings(former)
    )
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert 'UPDATE "public"."by_page" SET "buys" = NULL WHERE NOT final' in plan.ddl


@pytest.mark.parametrize(
    ("former", "wanted"),
    [
        (
            windows(*COUNTED),
            windows(
                *COUNTED, windows={"size_us": 90, "every_us": 90, "time_zone": "UTC"}
            ),
        ),
        (windows(*COUNTED), windows(*COUNTED, windows={"gap_us": 60})),
        (windows(*COUNTED), windows(*COUNTED, keys=[])),
        (windows(*COUNTED), windows(*COUNTED, discards=True)),
        (windows("n=count(*)"), windows("n=count(page)")),
        (windows("n=count(*)"), windows("n=count_if(page)")),
        (windows(*COUNTED, waits=True), windows(*COUNTED)),
        (
            windows(*COUNTED, is_home=False),
            windows(*COUNTED, "n=count(*)", is_home=False),
        ),
    ],
)
def test_what_open_windows_cannot_continue_is_refused(
    former: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """The way out is another table or another name."""
    held = holdings(former, waiting_rows=1)
    plan = compare(version(former), version(wanted), held)
    assert {"WINDOW_CHANGED"} == codes(plan)
    with pytest.raises(ConfigurationError, match=r"WINDOW_CHANGED.*another"):
        plan.check_possible()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"page": "a"}, {"page": "b"}),
        ({}, {"page": "b"}),
        ({"size": "b"}, {"size": "b + 1"}),
        ({"b": "1", "size": "B"}, {"b": "2", "size": "B"}),
    ],
)
def test_what_is_computed_otherwise_means_something_else(
    before: dict[str, str], after: dict[str, str]
) -> None:
    """To groups, and to aggregates, also by way of another column."""
    output = windows("n=count(SIZE)", "of_text=count(nullif(x, 'size'))")
    one, other = (
        version(output, definition={"compute": [list(item) for item in given.items()]})
        for given in (before, after)
    )
    plan = compare(one, other, holdings(output))
    assert {"WINDOW_CHANGED"} == codes(plan)
    (finding,) = plan.reckoning.findings
    assert finding.saw in ("what it groups by changed.", "what n means changed.")


def test_a_column_that_windows_do_not_read_is_computed_otherwise() -> None:
    """Nothing that they hold came from it."""
    output = windows("n=count(nullif(size, other(a.other)))")
    one, other = (
        version(output, definition={"compute": [["other", text], ["size", "1"]]})
        for text in ("size", "size + 1")
    )
    plan = compare(one, other, holdings(output))
    assert PlanVerdict.COMPATIBLE is plan.verdict
    assert ["computed column other"] == [one.what for one in plan.changes]


def test_longer_lateness_leaves_final_windows_closed() -> None:
    """What they held is gone: they would begin again from nothing."""
    former, wanted = windows(*COUNTED), windows(*COUNTED, allowed_lateness_us=90)
    plan = compare(version(former), version(wanted), holdings(former))
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    closed_us = 100 * HOUR_US - 30
    assert closed_us == plan.held.windows["by_page"].closed_through_us
    back = compare(version(wanted), version(former), holdings(former), plan.held)
    assert PlanVerdict.COMPATIBLE is back.verdict
    assert closed_us == back.held.windows["by_page"].closed_through_us


def test_windows_that_were_left_open_are_not_taken_up_again() -> None:
    """They would be counted from nothing, over what they had counted."""
    by_page = windows(*COUNTED)
    plan = compare(version(), version(by_page), holdings(by_page, open_rows=2))
    assert {"WINDOWS_LEFT_OPEN"} == codes(plan)
    plan = compare(version(), version(by_page), holdings(by_page))
    assert PlanVerdict.COMPATIBLE is plan.verdict


def test_windows_that_were_closed_before_do_not_open_with_more_lateness() -> None:
    """Shorter and longer again: what was final by the shorter one stays final."""
    former, wanted = windows(*COUNTED), windows(*COUNTED, allowed_lateness_us=90)
    closed_us = 100 * HOUR_US - 10
    held = HeldKnowledge(windows={"by_page": HeldWindows(closed_through_us=closed_us)})
    plan = compare(version(former), version(wanted), holdings(former), held)
    assert closed_us == plan.held.windows["by_page"].closed_through_us
