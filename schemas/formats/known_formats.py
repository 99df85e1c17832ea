"""The value formats that there are, by the ending of a contract's file.

A new format is added to ``FORMATS``. A reference to a contract may begin with a framing
of Avro, as in ``raw:page_view.v1``; without one it means Confluent's. In front of that
may be an envelope, as in ``debezium:orders.v1.avsc``.
"""

from __future__ import annotations

from tallyweir.schemas.formats.avro.avro_format import Avro
from tallyweir.schemas.formats.avro.debezium_avro import DebeziumAvro
from tallyweir.schemas.formats.debezium_envelope import ENVELOPES
from tallyweir.schemas.formats.format import Format
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.protobuf.framed_protobuf import FramedProtobuf
from tallyweir.schemas.formats.protobuf.protobuf_format import (
    CompiledProtobuf,
    Protobuf,
)

_EACH: tuple[Format, ...] = (Avro(), Protobuf(), CompiledProtobuf())
FORMATS: dict[str, Format] = {one.suffix: one for one in _EACH}
#: The formats whose schemas a registry keeps, by the registry's names of them.
REGISTRY_FORMATS: dict[str, Format] = {
    Avro.registry_kind: Avro(),
    FramedProtobuf.registry_kind: FramedProtobuf(),
}
#: The same where an envelope is around each event.
ENVELOPED_FORMATS: dict[str, Format] = {DebeziumAvro.registry_kind: DebeziumAvro()}


def format_of(name: str) -> Format | None:
    """Return the format of a contract's file; None if no format has its ending.

    Args:
        name: The file, followed by ``#`` and a part where files have several.
    """
    file = name.partition("#")[0]
    return next(
        (
            one
            for suffix, one in FORMATS.items()
            if (file if one.has_parts else name).endswith(suffix)
        ),
        None,
    )


def with_framing(name: str, framing: str, envelope: str | None = None) -> str:
    """Return the reference to a contract in a framing, and in an envelope."""
    framed = name if framing == Framing.CONFLUENT else f"{framing}:{name}"
    return framed if envelope is None else f"{envelope}:{framed}"


def split_envelope(reference: str) -> tuple[str | None, str]:
    """Return the envelope of a reference, and the rest of it."""
    for envelope in ENVELOPES:
        if reference.startswith(f"{envelope}:"):
            return envelope, reference.removeprefix(f"{envelope}:")
    return None, reference


def split_framing(reference: str) -> tuple[Framing, str]:
    """Return the framing of a reference, and the rest of it."""
    for framing in Framing:
        if reference.startswith(f"{framing}:"):
            return framing, reference.removeprefix(f"{framing}:")
    return Framing.CONFLUENT, reference
