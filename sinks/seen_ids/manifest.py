"""The manifest: which files of a shard's folder count, and what they stand for."""

from __future__ import annotations

import json
import uuid
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from sinks.seen_ids.segment import SegmentDamagedError, SegmentEntry

BEFORE_ANY_SEQUENCE = -1
BEFORE_ANY_BUCKET = -(2**63)
LOCK_NAME = "lock"

_MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the folder of a shard stands for.

    Attributes:
        through_sequence: The newest batch whose IDs are here.
        live_from_bucket: IDs of older buckets may be missing.
        segments: In order of their sequences.
    """

    through_sequence: int = BEFORE_ANY_SEQUENCE
    live_from_bucket: int = BEFORE_ANY_BUCKET
    segments: tuple[SegmentEntry, ...] = ()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        SegmentDamagedError: There is none, or it is not what was written.
    """
    try:
        stored = (folder / _MANIFEST_NAME).read_bytes()
    except FileNotFoundError as exc:
        raise SegmentDamagedError(_MANIFEST_NAME) from exc
    checksum, _, body = stored.partition(b"\n")
    if checksum != _checksum(body):
        raise SegmentDamagedError(_MANIFEST_NAME)
    fields = json.loads(body)
    segments = tuple(SegmentEntry(**entry) for entry in fields.pop("segments"))
    return Manifest(segments=segments, **fields)


def replace_manifest(folder: Path, manifest: Manifest) -> None:
    """Make ``manifest`` the one that counts, then remove every file it does not name.

    Crash:
        Before the rename: the old manifest counts and its files are all there. After:
        the new one counts; files left over are removed by the next call.
    """
    body = json.dumps(asdict(manifest)).encode()
    unfinished = folder / f"{uuid.uuid4().hex}.manifest"
    unfinished.write_bytes(_checksum(body) + b"\n" + body)
    unfinished.replace(folder / _MANIFEST_NAME)
    named = {entry.name for entry in manifest.segments} | {_MANIFEST_NAME, LOCK_NAME}
    for path in folder.iterdir():
        if path.name not in named:
            path.unlink(missing_ok=True)


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
