"""Splits what a Postgres client sends into messages, and names those that matter.

It understands just enough of the frontend protocol to know where a transaction ends:
framing, statements in simple queries, and prepared statements that are run by name.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum

_STARTUP_HEADER = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_TYPED_HEADER_BYTES = 5
_STARTUP_HEADER_BYTES = 8

#: Requests of eight bytes that a client may send before the startup message.
_TLS_REQUEST = 80_877_103
_GSS_REQUEST = 80_877_104

#: The beginning of a statement that only publish transactions contain.
_LEDGER_ROW = b"INSERT INTO tallyweir.batch "


class Statement(StrEnum):
    """Messages at which chaos cuts a connection."""

    #: A client has sent all rows of a COPY.
    COPY_END = "copy_end"
    #: COMMIT of a transaction that wrote no ledger row.
    COMMIT = "commit"
    #: COMMIT of a transaction that wrote one: the decision about a batch.
    PUBLISH_COMMIT = "publish_commit"
    #: PREPARE TRANSACTION.
    PREPARE = "prepare_transaction"
    COMMIT_PREPARED = "commit_prepared"
    ROLLBACK_PREPARED = "rollback_prepared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a client.

    Attributes:
        raw: All of its bytes.
        statement: What the server does on it, if that is one of the named statements.
    """

    raw: bytes
    statement: Statement | None = None


class ClientStream:
    """Splits what one client sends into messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_started = False
        self._prepared: dict[bytes, bytes] = {}
        self._bound = b""
        self._publishes = False

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes in; return the messages that are now complete, in order."""
        self._rest += data
        messages = []
        while (size := self._next_size()) is not None and len(self._rest) >= size:
            raw, self._rest = self._rest[:size], self._rest[size:]
            messages.append(self._read(raw))
        return messages

    def _next_size(self) -> int | None:
        if not self._is_started:
            if len(self._rest) < _STARTUP_HEADER_BYTES:
                return None
            size: int = _LENGTH.unpack_from(self._rest)[0]
            return size
        if len(self._rest) < _TYPED_HEADER_BYTES:
            return None
        length: int = _LENGTH.unpack_from(self._rest, 1)[0]
        return 1 + length

    def _read(self, raw: bytes) -> Message:
        if not self._is_started:
            _, code = _STARTUP_HEADER.unpack_from(raw)
            self._is_started = code not in (_TLS_REQUEST, _GSS_REQUEST)
            return Message(raw=raw)
        body = raw[_TYPED_HEADER_BYTES:]
        match raw[:1]:
            case b"c":
                return Message(raw=raw, statement=Statement.COPY_END)
            case b"Q":
                return Message(raw=raw, statement=self._name(body))
            case b"P":
                name, _, rest = body.partition(b"\0")
                self._prepared[name] = rest.partition(b"\0")[0]
            case b"B":
                _, _, rest = body.partition(b"\0")
                self._bound = self._prepared.get(rest.partition(b"\0")[0], b"")
            case b"E":
                return Message(raw=raw, statement=self._name(self._bound))
        return Message(raw=raw)

    def _name(self, text: bytes) -> Statement | None:
        words = b" ".join(text.rstrip(b"\0; \n").split())
        if words.startswith(_LEDGER_ROW):
            self._publishes = True
        publishes = self._publishes
        upper = words.upper()
        if upper.startswith(b"PREPARE TRANSACTION"):
            self._publishes = False
            return Statement.PREPARE
        if upper.startswith(b"COMMIT PREPARED"):
            return Statement.COMMIT_PREPARED
        if upper.startswith(b"ROLLBACK PREPARED"):
            return Statement.ROLLBACK_PREPARED
        if upper == b"COMMIT":
            self._publishes = False
            return Statement.PUBLISH_COMMIT if publishes else Statement.COMMIT
        if upper == b"ROLLBACK":
            self._publishes = False
        return None
