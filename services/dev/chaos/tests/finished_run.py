"""A small finished run as it should be, made without any server."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from dataclasses import replace

from tallyweir.services.dev.chaos.invariants import BROKEN_RULE, Sent, Witnesses
from tallyweir.services.dev.chaos.observed_run import (
    Branch,
    LedgerBatch,
    LedgerRange,
    ObservedRun,
    ResultRow,
    WindowKey,
    WindowTotals,
)
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.services.dev.chaos.sent_log import Place, SentRecord
from tallyweir.services.dev.chaos.snapshots import SeenBatch
from tallyweir.services.dev.chaos.supervisor import PublishedBatch
from tallyweir.services.dev.chaos.workload import (
    EPOCH_US,
    GOOD,
    SITES,
    ChaosEvent,
    RecordKind,
)

PARTITIONS = 2
OFFSETS_PER_BATCH = 10
PARTICIPANT = "p1"
_OFFSETS = 60
_WINDOW_US = 15 * 60 * 1_000_000
_BEGAN = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)


def sent_records(seed: int) -> dict[Place, SentRecord]:
    """Records of both partitions, with repeats, bad ones and gaps between them."""
    source = random.Random(seed)
    sent: dict[Place, SentRecord] = {}
    events: list[SentRecord] = []
    for offset in range(_OFFSETS):
        for partition in range(PARTITIONS):
            if source.random() < 0.1:
                continue  # an aborted record, or a marker
            place = (partition, offset)
            kind = source.choices(
                [RecordKind.EVENT, RecordKind.REPEAT, RecordKind.UNDECODABLE],
                weights=[8, 1, 1],
            )[0]
            if kind is RecordKind.REPEAT and events:
                known = source.choice(events)
                sent[place] = SentRecord(
                    kind=kind,
                    event_id=known.event_id,
                    fingerprint=known.fingerprint,
                    site=known.site,
                    amount=known.amount,
                    happened_at_us=known.happened_at_us,
                )
                continue
            kind = RecordKind.EVENT if kind is RecordKind.REPEAT else kind
            sent[place] = _record(kind, f"e{partition}-{offset}", source)
            if kind is RecordKind.EVENT:
                events.append(sent[place])
    sent[0, _OFFSETS] = _record(RecordKind.RULE_BREAKER, "breaks-the-rule", source)
    return sent


def finished(sent: Sent) -> ObservedRun:
    """What a pipeline without faults makes of the records."""
    seen: set[str] = set()
    rows: list[ResultRow] = []
    duplicates: list[tuple[Place, str]] = []
    dead: list[tuple[Place, str]] = []
    counts: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for place in sorted(sent, key=lambda p: (p[1] // OFFSETS_PER_BATCH, p)):
        record = sent[place]
        counted = counts[1 + place[1] // OFFSETS_PER_BATCH, place[0]]
        counted["read"] += 1
        if record.kind not in GOOD:
            is_rule = record.kind is RecordKind.RULE_BREAKER
            dead.append((place, BROKEN_RULE if is_rule else "MALFORMED"))
            counted["dead"] += 1
        elif record.event_id in seen:
            duplicates.append((place, record.event_id))
            counted["duplicate"] += 1
        else:
            seen.add(record.event_id)
            rows.append(
                ResultRow(
                    database=HOME,
                    place=place,
                    event_id=record.event_id,
                    fingerprint=record.fingerprint,
                )
            )
            counted["committed"] += 1
    batches = _OFFSETS // OFFSETS_PER_BATCH + 1
    return ObservedRun(
        rows=tuple(rows),
        duplicates=tuple(duplicates),
        dead_letters=tuple(dead),
        other_places=(),
        batches=tuple(
            LedgerBatch(
                sequence=sequence,
                epoch=1 + sequence // 3,
                spark_batch_id=sequence,
                published_at=_BEGAN + dt.timedelta(seconds=sequence),
            )
            for sequence in range(1, batches + 1)
        ),
        ranges=tuple(
            LedgerRange(
                sequence=sequence,
                partition=partition,
                from_offset=(sequence - 1) * OFFSETS_PER_BATCH,
                until_offset=sequence * OFFSETS_PER_BATCH,
                **{
                    name: counts[sequence, partition][name]
                    for name in ("read", "committed", "duplicate", "dead", "other")
                },
            )
            for sequence in range(1, batches + 1)
            for partition in range(PARTITIONS)
        ),
        positions=dict.fromkeys(range(PARTITIONS), batches * OFFSETS_PER_BATCH),
        last_sequence=batches,
        claims=tuple(range(1, 2 + batches // 3)),
        windows=_windows(sent),
        decided=(),
        markers=(),
    )


def in_two_databases(found: ObservedRun) -> ObservedRun:
    """Let every second row lie in a participant, with a branch for each batch."""
    rows = tuple(
        replace(row, database=PARTICIPANT) if index % 2 else row
        for index, row in enumerate(found.rows)
    )
    moved = Counter(
        1 + row.place[1] // OFFSETS_PER_BATCH
        for row in rows
        if row.database == PARTICIPANT
    )
    markers = tuple(
        Branch(database=PARTICIPANT, sequence=sequence, gid=f"g{sequence}", rows=count)
        for sequence, count in sorted(moved.items())
    )
    decided = tuple(replace(marker, rows=None) for marker in markers)
    return replace(found, rows=rows, markers=markers, decided=decided)


def witnesses(found: ObservedRun) -> Witnesses:
    """Somebody saw every batch, and its driver told of it."""
    return Witnesses(
        seen={
            batch.sequence: SeenBatch(
                sequence=batch.sequence,
                epoch=batch.epoch,
                spark_batch_id=batch.spark_batch_id,
            )
            for batch in found.batches
        },
        changed=(),
        told=tuple(
            PublishedBatch(
                driver=1,
                epoch=batch.epoch,
                sequence=batch.sequence,
            )
            for batch in found.batches
        ),
    )


def _windows(sent: Sent) -> tuple[tuple[WindowKey, WindowTotals], ...]:
    totals: dict[WindowKey, list[int]] = defaultdict(list)
    once = {r.event_id: r for r in sent.values() if r.kind in GOOD}
    for record in once.values():
        start_us = record.happened_at_us // _WINDOW_US * _WINDOW_US
        start = dt.datetime.fromtimestamp(start_us / 1e6, tz=dt.UTC)
        totals[start, record.site].append(record.amount)
    return tuple(
        (key, (len(several), sum(several), min(several), max(several)))
        for key, several in totals.items()
    )


def _record(kind: RecordKind, event_id: str, source: random.Random) -> SentRecord:
    event = ChaosEvent(
        event_id=event_id,
        site=source.choice(SITES),
        amount=source.randrange(100),
        happened_at_us=EPOCH_US + source.randrange(4 * _WINDOW_US),
        note="",
    )
    return SentRecord(
        kind=kind,
        event_id=event.event_id,
        fingerprint=event.fingerprint,
        site=event.site,
        amount=event.amount,
        happened_at_us=event.happened_at_us,
    )
