"""Debezium's envelope, in any format: what each record of a connector's topics is.

Its columns are those of ``json.json_fields``, read by ``json.json_codec``, or of
``avro.debezium_schema``.

A change is an object with ``op``, ``before``, ``after`` and ``source``. With the schema
part of Kafka Connect's converter, it is the ``payload`` of another object. Beside
changes, the topics of a connector hold tombstones, heartbeats, the begin and end of
transactions, and changes of schemas. These change no row, so they are skipped.
See https://debezium.io/documentation/reference/stable/connectors/postgresql.html.
"""

from __future__ import annotations

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.json.json_text import (
    Fault,
    Value,
    parse_document,
    show,
)

DEBEZIUM = "debezium"
ENVELOPES = (DEBEZIUM,)
#: The member that stands for the row after a change, or of a deletion the row before.
ROW = "row"
OP = "op"
#: The members that a path may begin with.
MEMBERS = (
    *(ROW, "before", "after", OP, "source", "transaction", "message"),
    *("ts_ms", "ts_us", "ts_ns"),
)
#: Which member holds the row, by the operation: create, read, update, delete.
IMAGES = {"c": "after", "r": "after", "u": "after", "d": "before"}
#: Truncations and logical messages have no row.
_ROWLESS = ("t", "m")
#: What repeats of a change share. After a restart, a connector sends changes again with
#: other times, and with other counts of their transaction.
COMPARED = (OP, "before", "after", "message")
_CLOCKS = {"ts_ms", "ts_us", "ts_ns"}


class SkippedRecordError(DecodeError):
    """A record that is no change, and is known for what it is.

    Attributes:
        what: What it is: ``tombstone``, ``heartbeat``, ``transaction`` or ``schema
            change``.
    """

    def __init__(self, what: str) -> None:
        super().__init__(ReasonCode.EMPTY_PAYLOAD, f"{what} of Debezium")
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what,)


def unwrap(payload: bytes | None) -> dict[str, Value]:
    """Return the members of a change, with its row as ``ROW``.

    Raises:
        SkippedRecordError: The record is no change.
        DecodeError: It is neither a change nor any other record of Debezium.
    """
    if payload is None:
        raise SkippedRecordError("tombstone")
    return change_of(parse_document(payload))


def change_of(document: dict[str, Value]) -> dict[str, Value]:
    """Return the members of a change that is read already, as ``unwrap`` does.

    Raises:
        DecodeError: As ``unwrap`` does.
    """
    try:
        members = _without_schema(document)
        other = _find_other(members)
        if other is not None:
            raise SkippedRecordError(other)
        return members | row_of(members)
    except Fault as exc:
        raise exc.as_error() from None


def compared(members: dict[str, Value]) -> dict[str, Value]:
    """Return the part of a change that its repeats share."""
    return {name: members[name] for name in COMPARED if name in members}


def _without_schema(document: dict[str, Value]) -> dict[str, Value]:
    if document.keys() != {"schema", "payload"}:
        return document
    inner = document["payload"]
    if inner is None:
        raise SkippedRecordError("tombstone")
    if not isinstance(inner, dict):
        fault = Fault(ReasonCode.WRONG_TYPE, f"expected an object, got {show(inner)}")
        fault.path.append("payload")
        raise fault
    return inner


def _find_other(members: dict[str, Value]) -> str | None:
    if OP in members:
        return None
    if "ts_ms" in members and members.keys() <= _CLOCKS:
        return "heartbeat"
    if members.get("status") in {"BEGIN", "END"} and "id" in members:
        return "transaction"
    if "ddl" in members or "tableChanges" in members:
        return "schema change"
    return None


def row_of(members: dict[str, Value]) -> dict[str, Value]:
    """Return the row of a change as the member ``ROW``; nothing if it has none.

    Raises:
        Fault: Its operation is none of Debezium's, or the row is missing.
    """
    operation = members.get(OP)
    if operation is None:
        raise _at(OP, ReasonCode.MISSING_FIELD, "missing or null")
    if not isinstance(operation, str) or operation not in {*IMAGES, *_ROWLESS}:
        known = ", ".join((*IMAGES, *_ROWLESS))
        expected = f"expected one of {known}, got {show(operation)}"
        raise _at(OP, ReasonCode.WRONG_TYPE, expected)
    if operation in _ROWLESS:
        return {}
    image = IMAGES[operation]
    row = members.get(image)
    if row is None and image == "after":
        raise _at(image, ReasonCode.MISSING_FIELD, "missing or null")
    if row is not None and not isinstance(row, dict):
        saw = f"expected an object, got {show(row)}"
        raise _at(image, ReasonCode.WRONG_TYPE, saw)
    return {ROW: row}


def _at(name: str, code: ReasonCode, saw: str) -> Fault:
    fault = Fault(code, saw)
    fault.path.append(name)
    return fault
