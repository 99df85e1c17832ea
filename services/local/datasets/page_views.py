"""Made-up page views, made fast; the same seed gives the same views."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from tallyweir.schemas.codec import EventRecord, encode_many
from tallyweir.schemas.contract import load_contract

CONTRACT = "page_view.v1"
#: The same fields as a message of Protocol Buffers.
MESSAGE = f"{Path(__file__).parent / 'page_view.proto'}#PageView"
USERS = 10_000
PAGES = [f"/shop/articles/{number:02}" for number in range(50)]
COUNTRIES = [
    *("AR", "AT", "AU", "BE", "BR", "CA", "CH", "CN", "DE", "DK"),
    *("ES", "FR", "GB", "IN", "IT", "JP", "MX", "PL", "SE", "US"),
]
EVENTS_PER_SECOND = 5_000

# A round instant in the past, so that no view is in the future of any clock.
FIRST_VIEW_MICROS = 1_704_067_200_000_000
_STEP_MICROS = 1_000_000 // EVENTS_PER_SECOND
_CHUNK = 10_000
_NEAR_EVENTS = 50
_FAR_EVENTS = 50_000
_PADDINGS = 1_000


def read_page_views(  # noqa: PLR0913 - what views differ in
    events: int,
    duplicates: float = 0.0,
    seed: int = 7,
    *,
    users: int = USERS,
    padding: int = 0,
    contract: str = CONTRACT,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield page views as (key, payload); the key is the event ID.

    Event time rises by a second every 5,000 distinct views.

    Args:
        events: Number of messages, repeats included.
        duplicates: The share of them that repeats an earlier one to the byte: half
            within 50 views, half up to 50,000 views later. Exactly
            ``round(events * duplicates)`` are repeats.
        seed: Each seed gives other views.
        users: Number of users, chosen with equal chances.
        padding: Letters appended to each page's path, which do not compress well.
        contract: How payloads are written, as ``load_contract`` takes it.
    """
    repeats = round(events * duplicates)
    distinct = events - repeats
    if not 0 <= repeats <= distinct:
        raise ValueError(f"{duplicates} is not a share of 0 to 0.5")
    source = np.random.default_rng(seed)
    lags = np.zeros(distinct, dtype=np.int64)
    repeated = source.choice(distinct, size=repeats, replace=False)
    near = source.integers(1, _NEAR_EVENTS, size=repeats)
    far = source.integers(_NEAR_EVENTS, _FAR_EVENTS, size=repeats)
    lags[repeated] = np.where(source.random(repeats) < 0.5, near, far)  # noqa: PLR2004 (half)

    paddings = _make_paddings(seed, padding)
    waiting: list[tuple[int, bytes, bytes]] = []
    position = 0
    for start in range(0, distinct, _CHUNK):
        count = min(_CHUNK, distinct - start)
        records = _make_records(source, start, count, users=users, paddings=paddings)
        views = _encode(contract, records)
        for view, lag in zip(views, lags[start : start + count].tolist(), strict=True):
            yield view
            position += 1
            if lag:
                heapq.heappush(waiting, (position + lag, *view))
            while waiting and waiting[0][0] <= position:
                yield heapq.heappop(waiting)[1:]
    while waiting:
        yield heapq.heappop(waiting)[1:]


def _make_paddings(seed: int, length: int) -> list[str]:
    """Make more paddings than one message set of the producer holds."""
    source = np.random.default_rng(seed)
    return [source.bytes(length).hex()[:length] for _ in range(_PADDINGS)]


def _encode(contract: str, records: list[EventRecord]) -> Iterator[tuple[bytes, bytes]]:
    keys = (str(record["event_id"]).encode() for record in records)
    return zip(keys, encode_many(load_contract(contract), records), strict=True)


def _make_records(
    source: np.random.Generator,
    start: int,
    count: int,
    *,
    users: int,
    paddings: Sequence[str],
) -> list[EventRecord]:
    raw = source.bytes(16 * count)
    event_ids = [
        str(uuid.UUID(bytes=raw[at : at + 16], version=4))
        for at in range(0, 16 * count, 16)
    ]
    moments = FIRST_VIEW_MICROS + _STEP_MICROS * np.arange(start, start + count)
    columns = zip(
        event_ids,
        source.integers(0, users, size=count).tolist(),
        map(
            str.__add__,
            source.choice(PAGES, size=count).tolist(),
            islice(cycle(paddings), count),
        ),
        source.choice(COUNTRIES, size=count).tolist(),
        moments.tolist(),
        source.integers(0, 10_000, size=count).tolist(),
        strict=True,
    )
    return [
        {
            "event_id": event_id,
            "user_id": user_id,
            "page": page,
            "country": country,
            "viewed_at": viewed_at,
            "value": cents / 100,
        }
        for event_id, user_id, page, country, viewed_at, cents in columns
    ]
