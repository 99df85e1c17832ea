"""SipHash-2-4 one value at a time, to hold the vectorised form against."""

from __future__ import annotations

import hashlib

_MASK = (1 << 64) - 1


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotate(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotate(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotate(v1, 17) ^ v2
    return v0, v1, _rotate(v2, 32), v3


def siphash(key: bytes, message: bytes, *, size: int) -> bytes:
    """Return SipHash-2-4 of ``message``, of 8 or 16 bytes."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    if size == 16:
        v1 ^= 0xEE
    whole = len(message) // 8 * 8
    last = message[whole:].ljust(7, b"\0") + bytes([len(message) % 256])
    padded = message[:whole] + last
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v3 ^= word
        for _ in range(2):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= 0xEE if size == 16 else 0xFF
    out = b""
    while len(out) < size:
        if out:
            v1 ^= 0xDD
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        out += (v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little")
    return out


def encode(parts: tuple[str | bytes | int, ...], key: bytes) -> bytes:
    """Encode the parts of an ID as the fingerprint module documents it."""
    encoded = b""
    for part in parts:
        if isinstance(part, int):
            tag, content = 3, part.to_bytes(8, "little", signed=True)
        elif isinstance(part, bytes):
            tag, content = 2, part
        else:
            tag, content = 1, part.encode()
        header = tag | len(content) << 8
        if len(content) > 512:
            header |= 0x80
            content = hashlib.blake2b(content, digest_size=32, key=key).digest()
        encoded += header.to_bytes(8, "little") + content
        encoded += bytes(-len(content) % 8)
    return encoded


def fingerprint_of(parts: tuple[str | bytes | int, ...], key: bytes) -> tuple[int, int]:
    """Return the (hi, lo) pair of one ID."""
    digest = siphash(key, encode(parts, key), size=16)
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
