"""Views that numpy has made are views to whoever decodes them."""

from __future__ import annotations

import numpy as np
import pytest

from tallyweir.schemas.codec import decode
from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.bench.soak.soak_load import BLOCK, ViewBlocks
from tallyweir.services.local.datasets.page_views import read_page_views

KNOWN = {contract.schema_id: contract for contract in [load_contract("page_view.v1")]}


def _records(payloads: list[bytes]) -> list[dict[str, object]]:
    return [decode(payload, KNOWN) for payload in payloads]


def test_new_views_have_ids_of_their_own_and_times_that_rise() -> None:
    """At 5,000 a second from the first view of all, through all blocks."""
    blocks = ViewBlocks(duplicates=0.02, seed=7)
    made = [blocks.next_block() for _ in range(3)]
    new = [
        (key, record)
        for block in made
        for key, record in zip(
            block.keys[: block.distinct],
            _records(block.payloads)[: block.distinct],
            strict=True,
        )
    ]
    assert [BLOCK] * 3 == [block.distinct for block in made]
    assert [key.decode() for key, _ in new] == [one["event_id"] for _, one in new]
    assert 3 * BLOCK == len({key for key, _ in new})
    # As they rise where each of them is encoded.
    expected = [record["viewed_at"] for record in _read(3 * BLOCK)]
    assert expected == [record["viewed_at"] for _, record in new]


def _read(views: int) -> list[dict[str, object]]:
    return _records([payload for _, payload in read_page_views(views)])


def test_repeats_are_of_the_block_before_to_the_byte() -> None:
    """Two of a hundred messages, each of another view."""
    blocks = ViewBlocks(duplicates=0.02, seed=7)
    first, second = blocks.next_block(), blocks.next_block()
    assert BLOCK == len(first.keys)
    repeats = list(zip(second.keys, second.payloads, strict=True))[second.distinct :]
    assert 0.02 == pytest.approx(len(repeats) / len(second.keys), rel=0.01)
    assert len(repeats) == len(set(repeats))
    assert set(repeats) <= set(zip(first.keys, first.payloads, strict=True))


def test_the_same_seed_makes_the_same_views_and_another_one_others() -> None:
    """IDs differ, so that two runs do not meet each other's."""
    one, again, other = (
        ViewBlocks(duplicates=0.0, seed=seed).next_block() for seed in (7, 7, 8)
    )
    assert one.payloads == again.payloads
    assert not set(one.keys) & set(other.keys)
    assert np.unique([len(key) for key in other.keys]).tolist() == [36]
