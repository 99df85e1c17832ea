"""Describes failures of users' own Python, and hashes its sources."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterable
from pathlib import Path

#: The innermost frames show where it failed; outer frames show only callers. Frames
#: inside libraries show neither.
_FRAMES_SHOWN = 3


def describe_failure(error: BaseException, *, quote_message: bool) -> str:
    """Return where users' code failed: the traceback's last frames in one line.

    Args:
        error: The error that it raised.
        quote_message: Include the error's message. While events are processed, the
            message may quote one, and events must not appear in logs.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
    ][-_FRAMES_SHOWN:]
    places = [
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames
    ]
    kind = type(error).__name__
    words = " ".join(str(error).split()) if quote_message else ""
    return " > ".join([*places, f"{kind}: {words}" if words else kind])


def hash_sources(files: Iterable[Path]) -> str:
    """Return 64 hex digits, equal for equal sources in any folder."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
