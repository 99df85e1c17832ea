"""The result of a replay, as a check of ``verify`` and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tallyweir.sinks.postgres.audit.receipt import Check, judge

_FOUND = ("missing", "extra", "different")
#: How many rows of each part a check spells out.
_SHOWN = 5


def check_replay(receipt: Mapping[str, Any]) -> Check:
    """Turn a receipt into a check of ``verify``."""
    parts = receipt["parts"]
    notes = [receipt["verdict"]]
    if receipt["why_after"]:
        notes.append(
            f"batches up to {receipt['after_sequence']} were not replayed: "
            f"{receipt['why_after']}"
        )
    undetermined = sum(part["undetermined"] for part in parts)
    if undetermined:
        notes.append(f"{undetermined:,} rows are undetermined")
    broken = sum(part[finding] for part in parts for finding in _FOUND)
    violations = list(_violations(parts))
    if not receipt["batches"]:
        violations.append("no batch could be replayed")
    check = judge(
        "replay",
        checked=sum(part["committed"] for part in parts),
        unit="rows",
        violations=violations,
        note="; ".join(notes),
    )
    return replace(check, violation_count=max(broken, len(violations)))


def _violations(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        rows = [row for row in part["rows"] if row["finding"] in _FOUND]
        for row in rows[:_SHOWN]:
            yield f"{part['name']}: {describe_row(row)}"


def describe_row(row: Mapping[str, Any]) -> str:
    """Describe a row in one line, with what the replay has in its place."""
    key = ", ".join(f"{name} {value}" for name, value in row["key"].items())
    committed, replayed = row["committed"], row["replayed"]
    if committed is None:
        what = f"is not there; the replay has {_said(replayed)}"
    elif replayed is None:
        what = f"is there with {_said(committed)}; the replay has no such row"
    else:
        what = f"has {_said(committed)}; the replay has {_said(replayed)}"
    return f"{key} {what}" + (f" ({row['reason']})" if row["reason"] else "")


def _said(values: Mapping[str, str | None]) -> str:
    return (
        ", ".join(f"{name} {value}" for name, value in values.items()) or "nothing else"
    )
