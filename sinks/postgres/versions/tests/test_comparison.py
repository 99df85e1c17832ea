"""What it takes for one version of a pipeline to follow another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tallyweir.sinks.postgres.versions.holdings import HeldTable, Holdings
from tallyweir.sinks.postgres.versions.tests.laid_out_versions import (
    COLUMNS,
    COUNTED,
    HOUR_US,
    append,
    codes,
    compare,
    fates,
    holdings,
    keyed,
    version,
    windows,
)
from tallyweir.sinks.postgres.versions.version_plan import PlannedFate, PlanVerdict
from tallyweir.sinks.protocol.errors import ConfigurationError


def test_the_same_version_changes_nothing() -> None:
    """Nor does it run a statement."""
    by_page = windows("views=count(*)")
    one = version(append(), by_page)
    plan = compare(one, one, holdings(append(), by_page))
    assert PlanVerdict.COMPATIBLE is plan.verdict
    assert () == plan.changes
    assert [] == plan.ddl
    assert {PlannedFate.KEPT} == set(fates(plan).values())


@pytest.mark.parametrize(
    "changed",
    [
        {"filter": "page <> 'x'"},
        {"compute": [["site", "lower(page)"]]},
        {"validate": [{"reason_code": "NO_PAGE", "condition": "page IS NOT NULL"}]},
        {"dead_letter_limit": {"share": 0.1, "records": 10}},
        {"monitor": {"show_keys": True}},
        {"code_version": "b" * 64},
        {"guarantee": "at_least_once"},
    ],
)
def test_what_is_done_to_events_may_change_at_a_start(changed: dict[str, Any]) -> None:
    """No state and no table depends on it."""
    by_page = windows("views=count(*)")
    former = version(by_page)
    plan = compare(
        former, version(by_page, definition=changed), holdings(by_page, open_rows=3)
    )
    assert PlanVerdict.COMPATIBLE is plan.verdict
    assert [next(iter(changed))] == [
        one.what.replace("rule NO_PAGE", "validate").replace(
            "computed column site", "compute"
        )
        for one in plan.changes
    ]
    assert PlannedFate.KEPT is fates(plan)["windows"]


def test_an_added_column_is_added_to_the_table() -> None:
    """A driver that was only started may not do that."""
    former, wanted = append(), append([*COLUMNS, ["country", "text"]])
    plan = compare(version(former), version(wanted), holdings(former))
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert plan.ddl == [
        'ALTER TABLE IF EXISTS "public"."views" ADD COLUMN IF NOT EXISTS "country" text'
    ]
    with pytest.raises(ConfigurationError, match=r"UPDATE_NEEDED.*views\.country"):
        plan.check_compatible()
    plan.check_possible()


def test_a_removed_column_stays() -> None:
    """It is NULL in new rows, unless the table forbids that."""
    former, wanted = append(), append(COLUMNS[:1])
    held = holdings(former)
    assert (
        PlanVerdict.COMPATIBLE
        is compare(version(former), version(wanted), held).verdict
    )
    demanding = {"id": ("text", True), "page": ("text", False)}
    strict = replace(held, tables={"views": HeldTable(columns=demanding)})
    plan = compare(version(former), version(wanted), strict)
    assert {"TABLE_DIFFERS"} == codes(plan)


def test_a_column_of_another_type_is_refused_until_the_table_has_it() -> None:
    """Rows would have to be written again, which takes as long as it takes."""
    former, wanted = append([["n", "integer"]]), append([["n", "bigint"]])
    plan = compare(version(former), version(wanted), holdings(former))
    assert {"TABLE_DIFFERS"} == codes(plan)
    plan = compare(version(former), version(wanted), holdings(wanted))
    assert PlanVerdict.COMPATIBLE is plan.verdict


def test_a_column_in_another_database_is_added_by_whoever_updates() -> None:
    """The home's transaction does not reach it."""
    former = append(is_home=False)
    wanted = append([*COLUMNS, ["country", "text"]], is_home=False)
    plan = compare(version(former), version(wanted), holdings())
    (found,) = plan.of(PlanVerdict.NEEDS_MIGRATION)
    assert "ADD COLUMN" in found.fix
    assert [] == plan.ddl


def test_a_longer_horizon_knows_no_id_that_was_forgotten() -> None:
    """A repeat of an event whose ID is forgotten would count twice."""
    longer = version(append(), horizon_us=48 * HOUR_US)
    plan = compare(version(append()), longer, holdings(append()))
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert 76 * HOUR_US == plan.held.ids_from_us
    assert PlannedFate.KEPT is fates(plan)["seen IDs"]


@pytest.mark.parametrize(("before", "after"), [(24, 751), (None, 751), (751, 752)])
def test_a_horizon_of_too_many_buckets_is_refused(
    before: int | None, after: int
) -> None:
    """They stay as wide as they were made when the pipeline began: an hour here."""
    former, wanted = (
        version(append(), horizon_us=None if one is None else one * HOUR_US)
        for one in (before, after)
    )
    plan = compare(former, wanted, holdings(append()))
    (found,) = plan.of(PlanVerdict.INCOMPATIBLE)
    assert "TOO_MANY_BUCKETS" == found.code
    assert f"need {after} buckets" in found.saw
    assert f"up to {750 * 3600} s" in found.fix
    assert "another pipeline name" in found.fix


@pytest.mark.parametrize(
    ("before", "after"), [(24, 750), (None, 750), (752, 751), (752, None)]
)
def test_a_horizon_that_the_buckets_can_keep_is_not_refused(
    before: int | None, after: int | None
) -> None:
    """Nor is one that asks for fewer of them than there are."""
    former, wanted = (
        version(append(), horizon_us=None if one is None else one * HOUR_US)
        for one in (before, after)
    )
    assert set() == codes(compare(former, wanted, holdings(append())))


@pytest.mark.parametrize(
    ("before", "after", "fate", "verdict"),
    [
        (24, 1, PlannedFate.KEPT, PlanVerdict.COMPATIBLE),
        (24, None, PlannedFate.LOST, PlanVerdict.NEEDS_MIGRATION),
        (None, 24, PlannedFate.STARTS_EMPTY, PlanVerdict.NEEDS_MIGRATION),
    ],
)
def test_the_fate_of_seen_ids_is_told(
    before: int | None, after: int | None, fate: PlannedFate, verdict: PlanVerdict
) -> None:
    """Whoever asks for it must know which repeats will count."""
    former, wanted = (
        version(append(), horizon_us=None if one is None else one * HOUR_US)
        for one in (before, after)
    )
    plan = compare(former, wanted, holdings(append()))
    assert fate is fates(plan)["seen IDs"]
    assert verdict is plan.verdict


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"source": {"event_id": {"field": "other"}}}, "SOURCE_CHANGED"),
        ({"source": {"event_time": "other"}}, "SOURCE_CHANGED"),
        ({"writers": [[2, "other.v1"]]}, "CONTRACT_CHANGED"),
        ({"writers": [[0, "JSON documents"]]}, "CONTRACT_CHANGED"),
    ],
)
def test_another_meaning_of_events_is_refused(
    changed: dict[str, Any], code: str
) -> None:
    """IDs, windows and records that are there would be taken for something else."""
    plan = compare(version(append()), version(append(), **changed), holdings(append()))
    assert {code} == codes(plan)


def test_documents_are_not_read_as_documents_of_another_kind() -> None:
    """Those behind a registry's ids are another; the fields make no kind."""
    plain, framed = [[0, "documents"]], [[0, "documents behind ids"]]
    plans = [
        compare(
            version(append(), writers=plain),
            version(append(), writers=after),
            holdings(append()),
        )
        for after in (plain, framed)
    ]
    assert [set(), {"CONTRACT_CHANGED"}] == list(map(codes, plans))


@pytest.mark.parametrize(
    "changed",
    [
        {"source": {"event_id": {"field": "other"}}},
        {"source": {"event_time": "other"}},
        {"writers": [[2, "other.v1"]]},
    ],
)
def test_a_first_contract_that_was_wrong_is_mended_by_an_update(
    changed: dict[str, Any],
) -> None:
    """Nothing was read but dead letters, so no ID, clock or row is of the former."""
    nothing = holdings(append(), has_events=False)
    plan = compare(version(append()), version(append(), **changed), nothing)
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    (told,) = plan.of(PlanVerdict.NEEDS_MIGRATION)
    assert "every record that was read became a dead letter" in told.why
    assert not told.fix


def test_columns_of_a_table_without_rows_are_changed_by_an_update() -> None:
    """There is no row that would have to be written again."""
    former, wanted = append([["n", "integer"], ["m", "text"]]), append([["n", "text"]])
    columns = {"n": ("integer", True), "m": ("text", False)}
    held = holdings(former)
    empty = replace(held, tables={"views": HeldTable(columns=columns, is_empty=True)})
    full = replace(held, tables={"views": HeldTable(columns=columns)})
    assert {"TABLE_DIFFERS"} == codes(compare(version(former), version(wanted), full))
    plan = compare(version(former), version(wanted), empty)
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert [
        'ALTER TABLE "public"."views" ALTER COLUMN "n" TYPE text USING NULL',
        'ALTER TABLE "public"."views" ALTER COLUMN "m" DROP NOT NULL',
    ] == plan.ddl


def test_a_guarantee_is_not_taken_back() -> None:
    """As ever: the tables may hold rows twice."""
    once = version(append())
    less = version(append(), definition={"guarantee": "at_least_once"})
    assert {"GUARANTEE_RAISED"} == codes(compare(less, once, holdings(append())))


def test_topics_come_and_go_with_their_contracts() -> None:
    """One that is left out keeps its position."""
    both = {"topic": ["views", "clicks"]}
    former = version(append(), source=both, writers=[[1, "view.v1"], [2, "click.v1"]])
    plan = compare(former, version(append()), holdings(append()))
    assert PlanVerdict.COMPATIBLE is plan.verdict
    (told,) = [f.why for f in plan.reckoning.fates if f.state == "offsets"]
    assert "clicks keeps its position" in told


def test_outputs_come_and_go() -> None:
    """A window's state goes with its output; its rows stay."""
    by_page = windows(*COUNTED)
    small, large = version(append()), version(append(), by_page)
    plan = compare(small, large, holdings(append()))
    assert PlanVerdict.COMPATIBLE is plan.verdict
    assert PlannedFate.STARTS_EMPTY is fates(plan)["rows"]
    plan = compare(large, small, holdings(append(), by_page))
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert PlannedFate.LOST is fates(plan)["windows"]
    assert ["DROP TABLE IF EXISTS"] == [one[:20] for one in plan.ddl]


def test_a_new_output_takes_no_table_of_another_shape() -> None:
    """It was made by somebody else."""
    held = Holdings(
        number=7,
        bucket_seconds=3600,
        tables={"views": HeldTable(columns={"x": ("text", True)})},
    )
    plan = compare(version(), version(append()), held)
    assert {"TABLE_DIFFERS"} == codes(plan)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"state": [["n", "Value"]]}, {"state": [["n", "List"]]}),
        ({"version": 2}, {"version": 1}),
        (
            {"kind": "join", "within": "1 hour"},
            {"kind": "join", "within": "2 hours"},
        ),
    ],
)
def test_state_of_another_meaning_is_refused_while_there_is_some(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Where there is none, nothing can be misread."""
    former, wanted = keyed(before), keyed(after)
    full = compare(version(former), version(wanted), holdings(former, keys=3))
    assert {"STATE_CHANGED"} == codes(full)
    empty = compare(version(former), version(wanted), holdings(former))
    assert PlanVerdict.COMPATIBLE is empty.verdict


def test_keys_that_are_computed_otherwise_are_refused_while_there_are_some() -> None:
    """The state of a key would be taken for that of another."""
    output = keyed({})
    one, other = (
        version(output, definition={"compute": [["machine", text]]})
        for text in ("a", "b")
    )
    full = compare(one, other, holdings(output, keys=3))
    assert {"STATE_CHANGED"} == codes(full)
    empty = compare(one, other, holdings(output))
    assert PlanVerdict.COMPATIBLE is empty.verdict


def test_state_is_migrated_by_its_version_and_new_names_start_empty() -> None:
    """A name that no function reads any more is lost."""
    former = keyed({"state": [["a", "Value"], ["b", "Value"]]})
    wanted = keyed({"state": [["a", "Value"], ["c", "Value"]], "version": 2})
    plan = compare(version(former), version(wanted), holdings(former, keys=3))
    assert {
        "state of keys": PlannedFate.MIGRATED,
        "state b": PlannedFate.LOST,
        "state c": PlannedFate.STARTS_EMPTY,
    }.items() <= fates(plan).items()


def test_the_state_of_a_removed_function_is_deleted() -> None:
    """Or its timers would wake the pipeline for ever."""
    reports = keyed({})
    plan = compare(version(reports), version(), holdings(reports, keys=3))
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert 2 == len(plan.ddl)


def test_a_moved_output_is_refused() -> None:
    """Its rows would be in two places."""
    former, wanted = append(), append()
    wanted["said"] = {**wanted["said"], "databases": ["other"]}
    plan = compare(version(former), version(wanted), holdings(former))
    assert {"OUTPUT_MOVED"} == codes(plan)


def test_the_json_of_a_plan_has_all_of_it() -> None:
    """Pipelines of releases read it."""
    former = windows(*COUNTED)
    wanted = windows(*COUNTED, "buys=count_if(b)")
    told = compare(version(former), version(wanted), holdings(former)).to_json()
    assert "needs migration" == told["verdict"]
    assert {
        "kind": "added",
        "what": "output by_page: aggregate buys",
        "before": None,
        "after": "count_if(b)",
    } in told["changes"]
    assert told["ddl"]
    assert told["reasons"]
    assert told["state"]
