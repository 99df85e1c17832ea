"""Who has no valid key learns nothing; who has one, sends in his own name only."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pytest

from tallyweir.services.ingest.api_keys import (
    API_KEYS,
    ApiKey,
    KeyFile,
    KeyRing,
    make_key,
)
from tallyweir.services.process.hashed_secrets import (
    add_secret,
    read_secrets,
    revoke_secret,
)
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.protocol.errors import ConfigurationError

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(seconds=1)


def key_of(
    producer: str = "shop",
    topics: tuple[str, ...] = ("views",),
    id_prefix: str | None = None,
    not_after: dt.datetime | None = None,
) -> tuple[ApiKey, str]:
    """A fresh key and its text."""
    return make_key(
        producer=producer,
        topics=topics,
        id_prefix=f"{producer}:" if id_prefix is None else id_prefix,
        not_after=not_after,
    )


def bearer(text: str) -> bytes:
    """A header's value."""
    return f"Bearer {text}".encode()


def test_a_key_opens_for_whom_it_was_made() -> None:
    """Of several keys, the one that was sent counts."""
    (one, text), (other, other_text) = key_of("shop"), key_of("till")
    ring = KeyRing([one, other], now=NOW)
    assert ring.authenticate(bearer(text), NOW) == one
    assert ring.authenticate(bearer(other_text), NOW) == other


def test_every_wrong_key_is_refused_in_the_same_words() -> None:
    """Unknown, malformed, swapped, expired: nothing tells them apart."""
    (one, text), (two, two_text) = key_of("shop"), key_of("till")
    expired, expired_text = key_of("bank", not_after=NOW)
    ring = KeyRing([one, two, expired], now=NOW)
    unknown = key_of()[1]
    swapped = f"{text[:16]}{two_text[16:]}"
    wrong = [
        None,
        b"",
        b"Bearer",
        b"\xff" * 100,
        bearer(unknown),
        bearer(swapped),
        bearer(expired_text),
        bearer(text[:-1]),
        bearer(text + "0"),
        bearer(text.upper()),
        bearer(text) + b"\n",
        bearer("tw_" + "0" * 12 + "_"),
        b"Basic " + text.encode(),
        text.encode(),
        bearer(f"tw_{one.id}_{one.sha256}"),
    ]
    problems = set()
    for authorization in wrong:
        with pytest.raises(RefusedError) as caught:
            ring.authenticate(authorization, NOW)
        problems.add(json.dumps(caught.value.as_problem()))
    assert len(problems) == 1
    assert '"status": 401' in problems.pop()


def test_a_key_expires_at_its_time() -> None:
    """Not before, and not a second late."""
    key, text = key_of(not_after=LATER)
    ring = KeyRing([key], now=NOW)
    assert ring.authenticate(bearer(text), NOW) == key
    with pytest.raises(RefusedError):
        ring.authenticate(bearer(text), LATER)


def test_neither_the_key_nor_the_file_shows_the_secret(tmp_path: Path) -> None:
    """What was printed once is nowhere else."""
    key, text = key_of()
    secret = text.rpartition("_")[2]
    add_secret(tmp_path / "keys.json", API_KEYS, key)
    assert secret not in (tmp_path / "keys.json").read_text()
    assert key.sha256 not in repr(key)


@pytest.mark.parametrize(
    ("prefixes", "fits"),
    [
        (("a:", "b:"), True),
        (("a:", "ab:"), True),
        (("a", "ab"), False),
        (("ab", "a"), False),
        (("", "b:"), False),
        (("a:", ""), False),
        (("a:", "a:"), False),
    ],
)
def test_ids_of_two_producers_of_a_topic_can_never_be_the_same(
    prefixes: tuple[str, str], *, fits: bool
) -> None:
    """Neither prefix begins the other, or the keys are refused as a whole."""
    keys = [
        key_of(name, topics=("views", name), id_prefix=prefix)[0]
        for name, prefix in zip(("one", "two"), prefixes, strict=True)
    ]
    apart = [
        key_of(name, topics=(name,), id_prefix=prefix)[0]
        for name, prefix in zip(("one", "two"), prefixes, strict=True)
    ]
    KeyRing(apart, now=NOW)
    if fits:
        KeyRing(keys, now=NOW)
        return
    with pytest.raises(ConfigurationError, match="KEYS_CONFLICT"):
        KeyRing(keys, now=NOW)


def test_an_expired_key_keeps_its_prefix_taken() -> None:
    """The IDs of its events are still remembered."""
    old, _ = key_of("one", id_prefix="", not_after=NOW)
    new, _ = key_of("two")
    with pytest.raises(ConfigurationError, match="KEYS_CONFLICT"):
        KeyRing([old, new], now=LATER)


def test_a_producer_has_two_active_keys_with_one_prefix() -> None:
    """Enough to rotate; a third, or another prefix, is a mistake."""
    keys = [key_of()[0] for _ in range(3)]
    expired = key_of(not_after=NOW)[0]
    KeyRing([*keys[:2], expired], now=LATER)
    with pytest.raises(ConfigurationError, match="more than 2 active"):
        KeyRing(keys, now=NOW)
    with pytest.raises(ConfigurationError, match="different ID prefixes"):
        KeyRing([keys[0], key_of(id_prefix="s:")[0]], now=NOW)
    with pytest.raises(ConfigurationError, match="same id"):
        KeyRing([keys[0], keys[0]], now=NOW)


def test_the_file_gives_back_what_was_put_in(tmp_path: Path) -> None:
    """Added keys are there, a revoked one is expired, others are untouched."""
    path = tmp_path / "keys.json"
    one, _ = key_of(
        topics=("views", "orders"), not_after=dt.datetime.max.replace(tzinfo=dt.UTC)
    )
    two, text = key_of("till")
    add_secret(path, API_KEYS, one)
    add_secret(path, API_KEYS, two)
    assert read_secrets(path, API_KEYS) == [one, two]
    file = KeyFile(path)
    assert file.ring.authenticate(bearer(text), NOW) == two
    revoke_secret(path, API_KEYS, two.id)
    assert file.reload_if_changed()
    assert not file.reload_if_changed()
    with pytest.raises(RefusedError):
        file.ring.authenticate(bearer(text), dt.datetime.now(dt.UTC))
    assert [key.id for key in file.ring.keys] == [one.id, two.id]
    with pytest.raises(ConfigurationError, match="KEY_UNKNOWN"):
        revoke_secret(path, API_KEYS, "0" * 12)


def test_a_file_that_is_not_valid_leaves_the_former_keys(tmp_path: Path) -> None:
    """It is complained of once; the next good version counts again."""
    path = tmp_path / "keys.json"
    key, text = key_of()
    add_secret(path, API_KEYS, key)
    good = path.read_text()
    file = KeyFile(path)
    path.write_text('{"keys": [')
    with pytest.raises(ConfigurationError, match="KEYS_MALFORMED"):
        file.reload_if_changed()
    assert not file.reload_if_changed()
    assert file.ring.authenticate(bearer(text), NOW) == key
    path.unlink()
    with pytest.raises(ConfigurationError, match="KEYS_UNREADABLE"):
        file.reload_if_changed()
    path.write_text(good.replace('"views"', '"orders"'))
    os.utime(path, ns=(1, 1))
    assert file.reload_if_changed()
    assert file.ring.authenticate(bearer(text), NOW).topics == {"orders"}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", "short"),
        ("producer", "Shop"),
        ("producer", ""),
        ("sha256", "0" * 63),
        ("topics", []),
        ("topics", ["a/b"]),
        ("topics", "views"),
        ("id_prefix", "x" * 65),
        ("id_prefix", "a\n"),
        ("id_prefix", "\u00e4"),
        ("not_after", "2026-01-01"),
        ("not_after", 5),
        ("secret", "x"),
    ],
)
def test_each_mistake_in_the_file_is_refused(
    tmp_path: Path, member: str, value: object
) -> None:
    """A key that is half understood lets nobody in."""
    path = tmp_path / "keys.json"
    add_secret(path, API_KEYS, key_of()[0])
    content = json.loads(path.read_text())
    content["keys"][0][member] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match="KEYS_MALFORMED"):
        read_secrets(path, API_KEYS)
