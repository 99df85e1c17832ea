"""Decides what becomes of offsets, watermark, seen IDs and the guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tallyweir.sinks.postgres.ledger.audited_pipeline import guarantee_of
from tallyweir.sinks.postgres.versions.holdings import Holdings
from tallyweir.sinks.postgres.versions.version_plan import (
    DescribedVersion,
    Finding,
    PlannedFate,
    PlanVerdict,
    Reckoning,
    StateFate,
)
from tallyweir.sinks.protocol.catalog_limits import BUCKETS_MAX
from tallyweir.sinks.protocol.guarantee import Guarantee


def compare_source(former: DescribedVersion, wanted: DescribedVersion) -> Reckoning:
    """Compare where events come from, and how often they count."""
    before: Mapping[str, Any] = former.definition.get("source", {})
    after: Mapping[str, Any] = wanted.definition.get("source", {})
    findings = list(find_guarantee_raised(former.definition, wanted.definition))
    findings += [
        _another(name, before.get(name), after.get(name))
        for name in ("event_id", "event_time")
        if before.get(name) != after.get(name)
    ]
    if _names_key(before) and _key_differs(before["key"], after.get("key")):
        findings.append(_another("key", before.get("key"), after.get("key")))
    findings += _unreadable(former, wanted)
    had, has = _topics(before), _topics(after)
    why = "The new version continues where the former one stopped"
    if has - had:
        why += f"; {', '.join(sorted(has - had))} from the start of its log"
    if had - has:
        why += f"; {', '.join(sorted(had - has))} keeps its position, unread"
    fates = [
        StateFate(
            subject="source", state="offsets", fate=PlannedFate.KEPT, why=f"{why}."
        ),
        StateFate(
            subject="source",
            state="watermark",
            fate=PlannedFate.KEPT,
            why=(
                "The watermark never goes back: with a longer delay it stops until "
                "event time has caught up."
            )
            if before.get("watermark_delay") != after.get("watermark_delay")
            else "The watermark never goes back.",
        ),
    ]
    return Reckoning(findings=tuple(findings), fates=tuple(fates))


def reckon_ids(
    former: DescribedVersion,
    wanted: DescribedVersion,
    holdings: Holdings,
    ids_from_us: int | None,
) -> tuple[int | None, Reckoning]:
    """Decide what becomes of the seen IDs.

    Returns:
        The event time from which IDs are known; None if only the horizon limits it.
    """
    had, has = former.layout["horizon_us"], wanted.layout["horizon_us"]
    watermark_us = holdings.watermark_us
    if had == has:
        if has is None:
            return None, Reckoning()
        return ids_from_us, _ids(PlannedFate.KEPT, "", "The horizon is the same.")
    most_us = BUCKETS_MAX * holdings.bucket_seconds * 1_000_000
    if has is not None and has > max(most_us, had or 0):
        return ids_from_us, Reckoning(
            findings=(_too_many_buckets(has, holdings.bucket_seconds),)
        )
    if has is None:
        ids_from_us, reckoning = (
            None,
            _ids(
                PlannedFate.LOST,
                "The pipeline stops remembering IDs.",
                "Repeats count again; those that were dropped stay dropped.",
            ),
        )
    elif had is None:
        ids_from_us, reckoning = (
            None,
            _ids(
                PlannedFate.STARTS_EMPTY,
                "The new version remembers IDs.",
                "IDs of earlier events are unknown, so repeats of those events count.",
            ),
        )
    elif has < had or watermark_us is None:
        reckoning = _ids(
            PlannedFate.KEPT,
            "The horizon changes.",
            "IDs older than the horizon are forgotten, bucket by bucket.",
            PlanVerdict.COMPATIBLE,
        )
    else:
        ids_from_us = max(watermark_us - had, ids_from_us or watermark_us - had)
        reckoning = _ids(
            PlannedFate.KEPT,
            "The horizon is longer.",
            (
                "Forgotten IDs do not come back: events from before the former "
                "horizon stay expired until the longer horizon is filled."
            ),
        )
    return ids_from_us, reckoning


def _ids(
    fate: PlannedFate,
    saw: str,
    why: str,
    verdict: PlanVerdict = PlanVerdict.NEEDS_MIGRATION,
) -> Reckoning:
    subject = "deduplicate"
    finding = Finding(verdict=verdict, subject=subject, saw=saw, why=why)
    return Reckoning(
        findings=(finding,) if saw else (),
        fates=(StateFate(subject=subject, state="seen IDs", fate=fate, why=why),),
    )


def _too_many_buckets(horizon_us: int, bucket_seconds: int) -> Finding:
    buckets = horizon_us // 1_000_000 // bucket_seconds
    return Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="TOO_MANY_BUCKETS",
        subject="deduplicate",
        saw=f"The new horizon is {horizon_us // 1_000_000} s. The pipeline stores IDs "
        f"in buckets of {bucket_seconds} s, fixed at its first start, so it would "
        f"need {buckets} buckets.",
        why="Each bucket is a table, and a lookup locks all of them: the server "
        "would run out of locks (max_locks_per_transaction).",
        fix=f"A horizon of up to {BUCKETS_MAX * bucket_seconds} s; or run the changed "
        "file under another pipeline name with other tables: its buckets are an eighth "
        "of the horizon that it begins with.",
    )


def _unreadable(former: DescribedVersion, wanted: DescribedVersion) -> list[Finding]:
    """Find contracts whose events the new version could not read any more.

    The rules of contracts have decided, when the contracts were loaded, whether one
    version of a contract can read what another wrote: only then is it a writer. What
    names its fields itself has no writer, and the id 0.
    """
    readable = {schema_id or name for schema_id, name in wanted.layout["writers"]}
    left = [
        f"{name} (schema id {schema_id})" if schema_id else name
        for schema_id, name in former.layout["writers"]
        if (schema_id or name) not in readable
    ]
    topics = [_topics(one.definition.get("source", {})) for one in (former, wanted)]
    # The pipeline does not read the rest of a topic that is left out.
    if not left or topics[0] - topics[1]:
        return []
    return [
        Finding(
            verdict=PlanVerdict.INCOMPATIBLE,
            code="CONTRACT_CHANGED",
            subject="source.schema",
            saw=f"Events written as {', '.join(left)} could no longer be read.",
            why="Such events that are still in the topic would become dead letters.",
            fix="Make the new contract a version of the former one, with defaults for "
            "what it adds, or list both in source.schema.",
        )
    ]


def _another(name: str, had: object, has: object) -> Finding:
    meaning = {
        "event_id": (
            "The pipeline remembers IDs of the former field, so repeats across the "
            "update would count twice."
        ),
        "key": (
            "The pipeline remembers IDs as the key was written, so repeats across the "
            "update would count twice."
        ),
        "event_time": "Watermark, windows and seen IDs are filed by the former clock.",
    }[name]
    return Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="SOURCE_CHANGED",
        subject=f"source.{name}",
        saw=f"source.{name} changes from {had} to {has}.",
        why=meaning,
        fix="Undo the change, or run the changed file under another pipeline name "
        "with other tables.",
    )


def _names_key(source: Mapping[str, Any]) -> bool:
    """Tell whether the ID of events is read from the key of records."""
    event_id = source.get("event_id", {})
    fields = [one.get("field", "") for one in event_id.get("parts", [event_id])]
    of_key = any(one == "key" or one.startswith("key_") for one in fields)
    return "key" in source and of_key


def _key_differs(had: Mapping[str, Any], has: Mapping[str, Any] | None) -> bool:
    """Tell whether a part of the key might be read as another value than before."""
    if has is None or had["format"] != has["format"]:
        return True
    kept = has.get("fields", [])
    return any(one not in kept for one in had.get("fields", []))


def _topics(source: Mapping[str, Any]) -> set[str]:
    topic = source.get("topic", [])
    return {topic} if isinstance(topic, str) else set(topic)


def find_guarantee_raised(
    stored: Mapping[str, Any], definition: Mapping[str, Any]
) -> Iterator[Finding]:
    """Find a change back from at least once; the change to it is allowed.

    Rows of a batch that was cut short, or of a task that outlives its driver, would
    stay in a table that is said to have each event once. The IDs of what was written
    meanwhile are unknown.

    Args:
        stored: The pipeline's definition as it last ran.
        definition: The definition that it is to run now.
    """
    if guarantee_of(stored) is Guarantee.EXACTLY_ONCE or (
        guarantee_of(definition) is Guarantee.AT_LEAST_ONCE
    ):
        return
    yield Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="GUARANTEE_RAISED",
        subject="guarantee",
        saw="The guarantee changes from at_least_once to exactly_once.",
        why="The tables may hold rows twice, and the pipeline does not know the IDs "
        "of the events that it wrote meanwhile.",
        fix="Keep guarantee: at_least_once, or start under another pipeline name "
        "with other tables.",
    )
