"""Page views are repeatable, rise in time, and repeat exactly as asked."""

from __future__ import annotations

from collections import Counter

import pytest

from tallyweir.schemas.codec import decode
from tallyweir.schemas.contract import load_contract
from tallyweir.services.local.datasets.page_views import (
    COUNTRIES,
    MESSAGE,
    PAGES,
    USERS,
    read_page_views,
)

KNOWN = {contract.schema_id: contract for contract in [load_contract("page_view.v1")]}


def test_views_are_events_of_the_contract_in_order_of_time() -> None:
    """5,000 views cover a second; keys are the event IDs."""
    views = list(read_page_views(12_000))
    records = [decode(payload, KNOWN) for _, payload in views]
    assert [key.decode() for key, _ in views] == [r["event_id"] for r in records]
    moments = [record["viewed_at"].timestamp() for record in records]  # type: ignore[attr-defined]  # a datetime
    assert moments == sorted(moments)
    assert moments[5_000] - moments[0] == pytest.approx(1.0)
    assert {record["page"] for record in records} == set(PAGES)
    assert {record["country"] for record in records} == set(COUNTRIES)
    assert len({record["user_id"] for record in records}) <= USERS
    assert len(PAGES) == 50
    assert len(COUNTRIES) == 20
    assert 75 <= sum(len(payload) for _, payload in views) / len(views) <= 90


def test_views_may_be_longer_and_of_other_users_and_are_else_the_same() -> None:
    """So that a benchmark varies one thing alone."""
    plain, long, few = (
        [decode(payload, KNOWN) for _, payload in views]
        for views in (
            read_page_views(1_000),
            read_page_views(1_000, padding=943),
            read_page_views(1_000, users=3),
        )
    )
    assert {len(str(record["page"])) for record in long} == {17 + 943}
    assert len({record["page"] for record in long}) == 1_000
    assert {record["user_id"] for record in few} == {0, 1, 2}
    for record, other in zip(plain, long, strict=True):
        assert str(other["page"]).startswith(str(record["page"]))
        assert {**record, "page": 0} == {**other, "page": 0}


def test_views_hold_the_same_as_messages_of_protobuf() -> None:
    """A benchmark of formats reads the same views in each."""
    contract = load_contract(MESSAGE)
    known = {contract.schema_id: contract}
    views = zip(
        read_page_views(500), read_page_views(500, contract=MESSAGE), strict=True
    )
    for (key, payload), (other_key, message) in views:
        assert key == other_key
        assert decode(payload, KNOWN) == decode(message, known)


def test_repeats_are_exact_in_number_and_in_bytes() -> None:
    """The share is of all messages; a repeat equals its original."""
    views = list(read_page_views(10_000, duplicates=0.2, seed=3))
    assert len(views) == 10_000
    assert len(set(views)) == 8_000
    assert len({key for key, _ in views}) == 8_000
    assert set(Counter(views).values()) == {1, 2}


def test_the_seed_decides_the_views() -> None:
    """Same seed, same bytes; another seed, other bytes."""
    first = list(read_page_views(100, 0.1, seed=1))
    assert first == list(read_page_views(100, 0.1, seed=1))
    assert first != list(read_page_views(100, 0.1, seed=2))


def test_more_repeats_than_views_are_refused() -> None:
    """Each view repeats once at most."""
    with pytest.raises(ValueError, match="share"):
        list(read_page_views(10, 0.6))
