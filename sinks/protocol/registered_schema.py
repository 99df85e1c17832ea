"""A schema as a schema registry has handed it out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema under the id that payloads name it by; an id never changes its meaning.

    Attributes:
        schema_id: The registry's id; 1 to 2**31 - 1.
        kind: The registry's name of the format: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: The schema, as it was registered.
        references: Name and text of each schema that it refers to, directly or not;
            those that a schema refers to come before it.
    """

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
