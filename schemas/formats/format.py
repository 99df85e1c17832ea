"""The interface of a value format: all that the rest of the project knows of one.

A format gives meaning to the bytes of Kafka values, by a contract. Each lives in a
module or package beside this one, and ``known_formats`` lists them. What a format's
decoder of whole batches returns is in ``decoded_columns``, because it needs Arrow.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tallyweir.schemas.errors import DecodeError, IncompatibleContractError
from tallyweir.schemas.schema_tree import Record
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder

SCHEMA_ID_MAX = (1 << 31) - 1

EventRecord = dict[str, object]
"""An event's fields as Python values: those that ``record_check`` accepts."""

Damage = Callable[[bytes, "Contract", Random], bytes]
"""Makes of an event's payload one that is no event, differently each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What the file of a contract says.

    Attributes:
        text: The schema in canonical form: equal texts mean the same.
        tree: The types of the event's fields.
        schema_id: The id that a registry has assigned; None if the file names none.
    """

    text: str
    tree: Record
    schema_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunField:
    """A field of a payload that need not be an event.

    Attributes:
        from_byte: The place in the payload where the field begins.
        until_byte: The place where the next field begins.
        value: The field's value.
    """

    from_byte: int
    until_byte: int
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunEvent:
    """The part of a payload that can be read.

    Attributes:
        fields: The writer's fields up to the first that cannot be read, in their order.
        failed_at: The place where that field begins; None if all fields can be read.
    """

    fields: tuple[BegunField, ...]
    failed_at: int | None

    def behind(self, header_bytes: int) -> BegunEvent:
        """Return the same of a payload with a header in front."""
        return BegunEvent(
            fields=tuple(
                replace(
                    one,
                    from_byte=one.from_byte + header_bytes,
                    until_byte=one.until_byte + header_bytes,
                )
                for one in self.fields
            ),
            failed_at=None if self.failed_at is None else self.failed_at + header_bytes,
        )


def require_readable(reader: Contract, differences: Sequence[str]) -> None:
    """Refuse a writer whose events a reader cannot read for some reasons.

    Raises:
        IncompatibleContractError: There are reasons.
    """
    if differences:
        raise IncompatibleContractError(
            "CONTRACT_INCOMPATIBLE",
            saw=f"{reader.reference} cannot read it: {'; '.join(differences)}",
            why="Its events would be read as something else.",
            fix="Register a schema whose events the pinned version reads, or pin a "
            "version that reads both.",
        )


class Format(ABC):
    """A value format. It compares equal to its unpickled copies.

    A payload is a Kafka value; None is a tombstone. ``writers`` are the contracts that
    may have written a payload, by schema id. No payload makes a method raise anything
    but ``DecodeError``.

    Attributes:
        suffix: The ending of a contract's file, such as ``.avsc``.
        has_parts: Whether a file holds several contracts, so that a reference to one
            ends with ``#`` and its name.
        names_writers: Whether a payload says which contract wrote it. If not, a
            pipeline reads one contract only, by itself and no other version.
        described: What payloads are called that name their fields themselves, so that
            any contract reads them, exactly or as dead letters; None if they do not.
        media_type: The media type of a request's body with one value, without a schema
            id.
        damages: The faults that ``emit --poison`` can put into payloads, by name.
        registry_kind: What a schema registry calls the format; None if it has none.
    """

    suffix: ClassVar[str]
    has_parts: ClassVar[bool] = False
    media_type: ClassVar[str]
    registry_kind: ClassVar[str | None] = None
    described: ClassVar[str | None] = None

    @property
    @abstractmethod
    def names_writers(self) -> bool: ...

    @property
    @abstractmethod
    def damages(self) -> Mapping[str, Damage]: ...

    @abstractmethod
    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        """Read the file of a contract.

        Args:
            content: The file's content.
            path: The file, for messages, and for what lies beside it.
            part: Which contract of the file; empty if the reference names none, as
                always if files have one contract.

        Raises:
            ContractError: It is not a schema, or a payload of it could kill a decoder;
                the error has all problems of the file.
        """

    def read_registered(self, schema: RegisteredSchema, part: str = "") -> Schema:
        """Read a schema of a registry, whose kind is ``registry_kind``.

        Args:
            schema: The schema.
            part: Which contract of the schema; empty for the only one.

        Raises:
            ContractError: As ``read_schema`` does.
        """
        raise NotImplementedError(schema.kind)

    def read_writer(self, schema: RegisteredSchema, reader: Contract) -> Schema:
        """Read another schema of a registry as what wrote events for a reader.

        Raises:
            ContractError: As ``read_registered`` does, or the reader cannot read the
                events; the error has all reasons.
        """
        found = self.read_registered(schema)
        require_readable(reader, self.find_incompatibilities(reader.tree, found.tree))
        return found

    @abstractmethod
    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        """List why a reader cannot read a writer's events; empty if it can."""

    @abstractmethod
    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        """Write one record as a payload.

        Raises:
            EncodeError: The record does not fit; the error names the field.
        """

    def encode_document(self, contract: Contract, document: str) -> bytes:
        """Write an event, given as a JSON object, as a payload.

        Types that JSON lacks are texts, as ``json_records`` reads them.

        Raises:
            EncodeError: The event does not fit; the error names the field.
            UnreadableTextError: A text is not of its field's type.
        """
        from tallyweir.schemas.json_records import compile_reader  # noqa: PLC0415 - it needs contracts

        return self.encode(contract, compile_reader(contract)(json.loads(document)))

    @abstractmethod
    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        """Read one payload as its writer wrote it: what ``encode`` was given.

        Raises:
            DecodeError: The payload is not an event.
        """

    def diagnose(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> DecodeError | None:
        """Say why a payload is not an event, for its dead letter; None if it is one."""
        try:
            self.decode(payload, writers)
        except DecodeError as exc:
            return exc
        return None

    def decode_body(self, body: bytes, contract: Contract) -> EventRecord:
        """Read a request's body of the format's media type.

        Raises:
            DecodeError: The body is not an event.
        """
        return self.decode(body, {contract.schema_id: contract})

    def schema_id(self, payload: bytes | None) -> int | None:
        """Return the schema id that a payload holds; None if it holds none."""
        del payload
        return None

    def writer_of(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> Contract | None:
        """Return the contract that wrote a payload, which need not be an event.

        None if none of them did, or if the payload does not say.
        """
        del payload
        return next(iter(writers.values()))

    def mark(self, contract: Contract) -> object:
        """Return what tells payloads of a contract from those of any other."""
        return contract.schema_id

    @abstractmethod
    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        """Read a payload as far as it goes; bytes behind the last field are ignored.

        Args:
            payload: The payload, which need not be an event.
            writer: The contract that wrote it.
            until: The last field to read; None for all.
        """

    @abstractmethod
    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        """Compile contracts to the decoder of whole batches.

        Args:
            contracts: The contracts by which the events are read, with their writers.
            wanted: The fields to return, each of a type that ``is_column``. The decoder
                checks all other fields as strictly, but does not return them.
        """

    def spark_expression(
        self, contract: Contract, writers: Mapping[int, Contract], column: str
    ) -> str | None:
        """Return how Spark decodes a column of payloads to structs, as Spark SQL.

        A struct has the contract's fields but those that are beyond Spark; it is null
        if no writer of the contract wrote the payload. Spark may be more lenient than
        the decoder, which decides what is an event.

        Returns:
            None if Spark cannot. Then it gets all columns from the decoder, and the
            contract has only fields of types that are columns.
        """
        del contract, writers, column
        return None
