"""Topics as lists of records, and the looks at them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tallyweir.services.look.identity_store import IdentityStore
from tallyweir.services.look.look import known_contracts
from tallyweir.services.look.look_report import LookReport, Table
from tallyweir.services.look.looked_record import (
    LookedBatch,
    LookedRecord,
    ReadExtent,
    TopicFacts,
)
from tallyweir.services.look.pipeline_proposal import Proposal, propose
from tallyweir.services.look.topic_profile import TopicProfile

#: 2026-11-26T00:00:00Z
NOW_MS = 1_795_651_200_000


def record(
    value: object,
    offset: int = 0,
    *,
    key: bytes | None = None,
    headers: dict[str, bytes] | None = None,
    partition: int = 0,
) -> LookedRecord:
    """Make a record; a value that is no bytes becomes JSON."""
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return LookedRecord(
        partition=partition,
        offset=offset,
        timestamp_ms=NOW_MS - 1_000_000 + offset,
        key=key,
        value=None if value is None else payload,
        headers=headers or {},
    )


def records(values: Sequence[object]) -> list[LookedRecord]:
    """Make the records of one partition."""
    return [record(value, offset) for offset, value in enumerate(values)]


@contextmanager
def profiled(found: Sequence[LookedRecord]) -> Iterator[TopicProfile]:
    """Note records."""
    with IdentityStore() as store:
        profile = TopicProfile(store, known_contracts(()), NOW_MS * 1_000)
        profile.add(LookedBatch.of(found))
        yield profile


def proposed(found: Sequence[LookedRecord], topic: str = "orders") -> Proposal:
    """Propose a pipeline for records; there must be one."""
    with profiled(found) as profile:
        proposal = propose(profile, topic)
    assert proposal is not None
    return proposal


def fields_of(*documents: object) -> dict[str, str]:
    """Return the fields that documents become, without an ID or a time."""
    with profiled(records(documents)) as profile:
        return {one.name: one.type.sql for one in profile.fields.list_fields()}


def told(
    found: Sequence[LookedRecord],
    *,
    settings: dict[str, str] | None = None,
    is_redacted: bool = False,
) -> str:
    """Return the report of a look at all records, as text."""
    with profiled(found) as profile:
        report = LookReport(
            facts=TopicFacts(
                topic="orders", offsets={0: (0, len(found))}, settings=settings or {}
            ),
            extent=ReadExtent(
                is_whole=True, records=len(found), offsets=len(found) + 2
            ),
            profile=profile,
            proposal=propose(profile, "orders"),
            key_counts=None,
            is_redacted=is_redacted,
            now_ms=NOW_MS,
        )
        return "\n".join(
            "\n".join(" | ".join(map(str, row)) for row in (part.columns, *part.rows))
            if isinstance(part, Table)
            else part
            for part in report.parts()
        )
