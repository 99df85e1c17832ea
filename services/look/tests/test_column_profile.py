"""What is noted by column is what is noted one record at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.services.look import identity_store, topic_profile
from tallyweir.services.look.column_profile import ColumnProfile
from tallyweir.services.look.id_candidates import SETTLED_AT
from tallyweir.services.look.identity_store import IdentityStore
from tallyweir.services.look.looked_record import LookedBatch, LookedRecord
from tallyweir.services.look.tests.looked_topics import record, told


def _order(source: Random, number: int) -> dict[str, object]:
    at = f"2026-11-{1 + number // 500:02}T{number // 60 % 24:02}:{number % 60:02}:00Z"
    made: dict[str, object] = {
        "order_id": f"o{number}",
        "uuid": f"{number:08x}-0000-4000-8000-{number:012x}",
        "customer": {"id": source.randrange(10**9), "name": source.choice("abc")},
        "amount": round(source.random() * 1_000, 2),
        "score": source.random(),
        "placed_at": at,
        "created_ts": 1_700_000_000_000 + number * 1_000 - source.randrange(60_000),
        "is_gift": source.random() < 0.5,
        "tags": source.choice([[], ["a"], [{"b": None}]]),
        "note": source.choice(["x", "", "Zoë", '"', "y" * 300]),
    }
    if source.random() < 0.2:
        made["coupon"] = source.choice([None, "A", 7])
    return made


#: What comes only after the fields seem to be known.
_LATE: list[dict[str, object]] = [
    {"amount": 12345678.5},
    {"amount": 0.00001},
    {"amount": 17},
    {"score": 12345678.123456789},
    {"score": "many"},
    {"customer": {"id": 1 << 62}},
    {"customer": {"id": -1}},
    {"customer": None},
    {"customer": {}},
    {"customer": 7},
    {"customer": {"id": 5, "vip": True}},
    {"uuid": "NO-UUID"},
    {"placed_at": "2026-11-01T00:00:00.123456789Z"},
    {"placed_at": "yesterday"},
    {"placed_at": None},
    {"created_ts": 5},
    {"created_ts": 1_700_000_000},
    {"tags": {}},
    {"tags": {"c": 1}},
    {"order_id": None},
    {"order_id": "o5"},
    {"note": None},
    {"new": "field"},
    {"op": "c", "source": {}, "after": {}},
]


def _records(seed: int, late: Sequence[dict[str, object]]) -> list[LookedRecord]:
    source = Random(seed)
    found: list[LookedRecord] = []
    payloads: list[bytes] = []
    for number in range(2 * SETTLED_AT):
        order = _order(source, number)
        if number > SETTLED_AT + 200 and source.random() < 0.02 and late:
            order |= source.choice(late)
        payload = json.dumps(order, separators=source.choice([None, (",", ":")]))
        value: bytes | None = payload.encode()
        if source.random() < 0.02 and payloads:
            value = source.choice(payloads[-300:])
        elif source.random() < 0.01:
            value = source.choice([None, b"text", b"{", b"\0\0\0\0\7x", b"[]"])
        payloads.append(payload.encode())
        found.append(
            record(
                value,
                number,
                partition=number % 3,
                key=source.choice([None, b"k%d" % number, b"\xff"]),
                headers={"event_id": b"h%d" % (number // 2)},
            )
        )
    return found


def _note_none(
    columns: ColumnProfile, _: LookedBatch, rows: Sequence[int]
) -> Sequence[int]:
    columns._prepare()
    return rows


@pytest.mark.parametrize("late", [[], _LATE, *([one] for one in _LATE)], ids=str)
def test_columns_tell_what_single_records_tell(late: list[dict[str, object]]) -> None:
    """Types, shares, IDs with their repeats, times with their disorder: the report."""
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    found = _records(seed, late)
    together = told(found)
    with mock.patch.object(ColumnProfile, "add", _note_none):
        alone = told(found)
    assert together == alone


def test_most_documents_are_noted_together() -> None:
    """Also when some of them hold something new."""
    found = _records(7, _LATE)
    own = topic_profile.TopicProfile._add_value
    with mock.patch.object(
        topic_profile.TopicProfile, "_add_value", autospec=True, side_effect=own
    ) as single:
        told(found)
    assert single.call_count < SETTLED_AT + 200


def _told_ids(values: Sequence[bytes], payloads: Sequence[bytes]) -> tuple[int, ...]:
    with IdentityStore() as store:
        for start in range(0, len(values), 1_000):
            stop = start + 1_000
            hashes = store.hash_payloads(pa.array(payloads[start:stop], pa.binary()))
            store.add(0, pa.array(values[start:stop], pa.binary()), hashes)
        counts = store.count(0)
        assert counts == store.count(0)
    return counts.values, counts.distinct, counts.repeats, counts.conflicts, counts.most


@pytest.mark.parametrize("chunk", [64, 1_000, 1 << 20])
def test_counts_do_not_depend_on_how_much_is_in_memory(chunk: int) -> None:
    """The first payload of a value decides, in whatever chunk it lies."""
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    source = Random(seed)
    values = [b"%d" % int(source.paretovariate(0.3) % 5_000) for _ in range(20_000)]
    payloads = [b"%d" % source.randrange(3) for _ in values]
    first: dict[bytes, bytes] = {}
    totals: dict[bytes, int] = {}
    repeats = conflicts = 0
    for value, payload in zip(values, payloads, strict=True):
        known = first.setdefault(value, payload)
        totals[value] = totals.get(value, 0) + 1
        if totals[value] > 1:
            repeats += payload == known
            conflicts += payload != known
    expected = (len(values), len(first), repeats, conflicts, max(totals.values()))
    with mock.patch.object(identity_store, "CHUNK_ROWS", chunk):
        assert expected == _told_ids(values, payloads)


def test_what_is_in_memory_does_not_grow_with_the_values() -> None:
    """Sixteen times as many values, in as many chunks, take no more memory."""
    peaks = []
    for chunks in (2, 32):
        rows: list[int] = []
        merge = identity_store._merge
        with (
            mock.patch.object(identity_store, "CHUNK_ROWS", 1_000),
            mock.patch.object(
                identity_store,
                "_merge",
                side_effect=lambda *parts, rows=rows, merge=merge: (
                    rows.append(sum(map(len, parts))) or merge(*parts)
                ),
            ),
        ):
            count = chunks * 1_000
            values = np.arange(count).astype("S8").tolist()
            assert _told_ids(values, values)[1] == count
        peaks.append(max(rows))
    assert peaks[1] <= 2 * peaks[0]
