"""What users' own Python is called when it fails, and how it is told apart."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterable
from pathlib import Path

#: The innermost frames say where it went wrong; the others, who called. Those inside
#: of libraries say neither.
_FRAMES_SHOWN = 3


def describe_failure(error: BaseException, *, quote_message: bool) -> str:
    """Say where users' code failed: the traceback's last lines, in one line of text.

    Args:
        error: What it raised.
        quote_message: Whether to repeat the error's own words. While events are
            worked on they may quote one, and events do not belong into logs.
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
    """Give equal sources the same 64 hex digits, wherever they lie."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
