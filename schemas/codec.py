"""Encode and decode single events, each in the format of its contract.

``EventContracts.decoder`` decodes the events of a running pipeline, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.format import EventRecord, Format

__all__ = ["EventRecord", "decode", "diagnose", "encode", "encode_many"]


def encode(contract: Contract, record: EventRecord) -> bytes:
    """Write one record as a payload.

    Instants are aware datetimes, or whole numbers in the field's unit.

    Raises:
        EncodeError: The record does not fit; the error names the field.
    """
    return contract.format.encode(contract, record)


def encode_many(contract: Contract, records: Iterable[EventRecord]) -> Iterator[bytes]:
    """Write each record as a payload, in order.

    Raises:
        EncodeError: A record does not fit; the payloads before it were yielded.
    """
    return map(partial(encode, contract), records)


def decode(payload: bytes | None, writers: Mapping[int, Contract]) -> EventRecord:
    """Read one payload as the contract that wrote it.

    Args:
        payload: A Kafka value; None is a tombstone.
        writers: As ``versions_of`` returns it.

    Raises:
        DecodeError: The payload is not an event. No bytes make this function raise
            another error.
    """
    return _format(writers).decode(payload, writers)


def diagnose(
    payload: bytes | None, writers: Mapping[int, Contract]
) -> DecodeError | None:
    """Say why a payload is not an event, for its dead letter; None if it is one."""
    return _format(writers).diagnose(payload, writers)


def _format(writers: Mapping[int, Contract]) -> Format:
    # All writers have one format (``EventContracts``, ``versions_of``).
    return next(iter(writers.values())).format
