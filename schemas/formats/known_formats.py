"""The value formats that there are, by the ending of a contract's file.

A new format is added to ``FORMATS``.
"""

from __future__ import annotations

from tallyweir.schemas.formats.avro.avro_format import Avro
from tallyweir.schemas.formats.format import Format

FORMATS: dict[str, Format] = {one.suffix: one for one in (Avro(),)}


def format_of(name: str) -> Format | None:
    """Return the format of a contract's file; None if no format has its ending."""
    return next((one for suffix, one in FORMATS.items() if name.endswith(suffix)), None)
