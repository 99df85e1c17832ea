"""Decides what becomes of the state that functions and joins keep for their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql

from tallyweir.sinks.postgres.ledger.output_kinds import JOIN
from tallyweir.sinks.postgres.versions.described_output import DescribedOutput
from tallyweir.sinks.postgres.versions.holdings import Holdings
from tallyweir.sinks.postgres.versions.version_plan import (
    Finding,
    PlannedFate,
    PlanVerdict,
    Reckoning,
    StateFate,
)

#: Settings on which the events that a join keeps depend.
_JOINED_BY = ("on", "within")


def compare_keyed(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    described: DescribedOutput,
    holdings: Holdings,
) -> Reckoning:
    """Compare an output with state that both versions have.

    Args:
        before: The output as the version in force lays it out.
        after: The output as the other version lays it out.
        described: The output as both definitions describe it.
        holdings: What the home holds.
    """
    had, has = described.before, described.after
    table = after["table"]
    is_join = has.get("kind") == JOIN.name
    state = "events of the join" if is_join else "state of keys"
    changed = []
    keys_anew = described.is_recomputed(name for name, _ in after["key"])
    if before["key"] != after["key"] or keys_anew:
        changed.append("its key")
    if is_join:
        changed += [name for name in _JOINED_BY if had.get(name) != has.get(name)]
        changed += [
            f"what is selected of {side}"
            for side in ("left", "right")
            if had.get(side, {}).get("select") != has.get(side, {}).get("select")
        ]
    former, wanted = dict(had.get("state", ())), dict(has.get("state", ()))
    changed += [
        f"the kind of state {name}"
        for name in former.keys() & wanted.keys()
        if former[name] != wanted[name]
    ]
    version, wanted_version = had.get("version", 1), has.get("version", 1)
    if wanted_version < version:
        changed.append(f"version, from {version} back to {wanted_version}")
    kept = holdings.table(table).keys
    if changed and kept:
        return Reckoning(findings=(_refused(table, changed, kept),))
    fate = PlannedFate.MIGRATED if wanted_version > version else PlannedFate.KEPT
    why = (
        f"Each value is migrated from version {version} when its key is read."
        if wanted_version > version
        else f"{kept} values and timers stay where they are."
    )
    fates = [StateFate(subject=f"output {table}", state=state, fate=fate, why=why)]
    fates += [
        StateFate(
            subject=f"output {table}",
            state=f"state {name}",
            fate=PlannedFate.LOST if name in former else PlannedFate.STARTS_EMPTY,
            why="No function of the new version reads it."
            if name in former
            else "No event before the update stored anything in it.",
        )
        for name in sorted(former.keys() ^ wanted.keys())
    ]
    return Reckoning(fates=tuple(fates))


def drop_keyed(output: Mapping[str, Any], holdings: Holdings) -> Reckoning:
    """Delete the state of a removed output, so that its timers do not fire forever."""
    table = output["table"]
    kept = holdings.table(table).keys
    if not kept:
        return Reckoning()
    return Reckoning(
        findings=(
            Finding(
                verdict=PlanVerdict.NEEDS_MIGRATION,
                subject=f"output {table}",
                saw=f"It keeps {kept} values and timers.",
                why="No function would read them, so the update deletes them.",
            ),
        ),
        fates=(
            StateFate(
                subject=f"output {table}",
                state="state of keys",
                fate=PlannedFate.LOST,
                why="The output is removed.",
            ),
        ),
        statements=tuple(
            sql.SQL(
                "DELETE FROM {} WHERE output_table = {} AND pipeline = "
                "(SELECT pipeline FROM tallyweir.pipeline WHERE pipeline_number = {})"
            ).format(
                sql.Identifier("tallyweir", kind),
                sql.Literal(table),
                sql.Literal(holdings.number),
            )
            for kind in ("keyed_state", "keyed_timer")
        ),
    )


def _refused(table: str, changed: list[str], kept: int) -> Finding:
    return Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="STATE_CHANGED",
        subject=f"output {table}",
        saw=f"{', '.join(changed)} changed, and {kept} values and timers are kept.",
        why="The new version would misinterpret them.",
        fix="Undo the change, or give the changed output another table, where it "
        "starts empty.",
    )
