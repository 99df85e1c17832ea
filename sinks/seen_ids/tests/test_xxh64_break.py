"""Why fingerprints are not XXH64: its collisions do not depend on the seed.

The decision that rests on this is ``docs/adr/0002-fingerprints-are-siphash.md``.
"""

from __future__ import annotations

import random
import struct

import pytest

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _mix(word: int) -> int:
    return _rotate(word * _P2 & _MASK, 31) * _P1 & _MASK


def _unmix(mixed: int) -> int:
    rotated = _rotate(mixed * pow(_P1, -1, 1 << 64) & _MASK, 33)
    return rotated * pow(_P2, -1, 1 << 64) & _MASK


def _xxh64(message: bytes, seed: int) -> int:
    """XXH64 of a message of whole words, shorter than 32 bytes."""
    assert len(message) % 8 == 0
    assert len(message) < 32
    acc = (seed + _P5 + len(message)) & _MASK
    for (word,) in struct.iter_unpack("<Q", message):
        acc = (_rotate(acc ^ _mix(word), 27) * _P1 + _P4) & _MASK
    acc = (acc ^ acc >> 33) * _P2 & _MASK
    acc = (acc ^ acc >> 29) * _P3 & _MASK
    return acc ^ acc >> 32


def _first_twin(word: int) -> int:
    return _unmix(_mix(word) ^ 1 << 36)


def _second_twin(word: int) -> int:
    return _unmix(_mix(word) ^ 1 << 63)


def _text_of(word: int) -> str | None:
    try:
        return word.to_bytes(8, "little").decode()
    except UnicodeDecodeError:
        return None


_ENCODED_SIZES = (range(0x20, 0x7F), range(0xA1, 0x800), range(0x800, 0xD800))


def _random_text_word(rng: random.Random) -> int:
    """Return eight bytes of valid UTF-8, of characters of one to four bytes."""
    while True:
        ranges = rng.choices((*_ENCODED_SIZES, range(0xE000, 0x110000)), k=4)
        encoded = "".join(chr(rng.choice(of)) for of in ranges).encode()
        if len(encoded) == 8:
            return int.from_bytes(encoded, "little")


@pytest.mark.parametrize(
    ("message", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"tallyweir-events", 0, 0x52DEFDE120D3AC33),
        (b"tallyweir-events", 2026, 0x6566A6A030290CCC),
    ],
)
def test_the_xxh64_of_this_file_is_the_real_one(
    message: bytes, seed: int, expected: int
) -> None:
    """The break is shown on XXH64 itself, by values of its own implementation."""
    assert _xxh64(message, seed) == expected


def test_a_thousand_pairs_collide_under_random_seeds_and_prefixes() -> None:
    """No seed and no secret prefix keeps two chosen IDs apart."""
    rng = random.Random(20261121)
    for _ in range(1_000):
        first, second = rng.getrandbits(64), rng.getrandbits(64)
        one = struct.pack("<QQ", first, second)
        other = struct.pack("<QQ", _first_twin(first), _second_twin(second))
        assert one != other
        for _ in range(3):
            seed, prefix = rng.getrandbits(64), rng.randbytes(8)
            assert _xxh64(one, seed) == _xxh64(other, seed)
            assert _xxh64(prefix + one, seed) == _xxh64(prefix + other, seed)


def test_pairs_of_valid_text_are_found_at_once() -> None:
    """The collisions reach IDs that are text, not only IDs of arbitrary bytes."""
    rng = random.Random(7)
    words = [_random_text_word(rng) for _ in range(25_000)]
    firsts = [word for word in words if _text_of(_first_twin(word)) is not None]
    seconds = [word for word in words if _text_of(_second_twin(word)) is not None]
    assert len(firsts) * len(seconds) >= 100
    for first, second in zip(firsts, seconds, strict=False):
        one = struct.pack("<QQ", first, second)
        other = struct.pack("<QQ", _first_twin(first), _second_twin(second))
        assert one.decode() != other.decode()
        seed = rng.getrandbits(64)
        assert _xxh64(one, seed) == _xxh64(other, seed)
