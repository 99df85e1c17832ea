"""A client's bytes are told apart, however they arrive."""

from __future__ import annotations

import struct

import pytest

from tallyweir.services.dev.chaos.plan import Statement
from tallyweir.services.dev.chaos.wire_proxy import ClientStream

STARTUP = struct.pack("!ii", 9, 196_608) + b"\0"
TLS_REQUEST = struct.pack("!ii", 8, 80_877_103)


def typed(kind: bytes, body: bytes) -> bytes:
    """Write a message as clients do after the startup."""
    return kind + struct.pack("!i", len(body) + 4) + body


def query(text: str) -> bytes:
    """Write a simple query."""
    return typed(b"Q", text.encode() + b"\0")


def parse(name: str, text: str) -> bytes:
    """Prepare a statement under a name."""
    return typed(b"P", name.encode() + b"\0" + text.encode() + b"\0\0\0")


def bind(name: str) -> bytes:
    """Bind a prepared statement to the unnamed portal."""
    return typed(b"B", b"\0" + name.encode() + b"\0" + b"\0" * 6)


EXECUTE = typed(b"E", b"\0\0\0\0\0")
LEDGER = "INSERT INTO tallyweir.batch (\n    pipeline, sequence) VALUES ($1, $2)"


def statements(*messages: bytes) -> list[Statement]:
    """Name what a started client says."""
    stream = ClientStream()
    stream.feed(STARTUP)
    found = stream.feed(b"".join(messages))
    return [one.statement for one in found if one.statement is not None]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_messages_come_out_whole_and_in_order_however_they_are_cut(size: int) -> None:
    """Nothing is lost, doubled or held back but the unfinished last message."""
    sent = [
        TLS_REQUEST,
        STARTUP,
        query("BEGIN"),
        typed(b"d", b"x" * 50),
        query("COMMIT"),
    ]
    data = b"".join(sent) + b"Q\0\0"
    stream = ClientStream()

    found = [
        message
        for start in range(0, len(data), size)
        for message in stream.feed(data[start : start + size])
    ]

    assert [message.raw for message in found] == sent
    assert found[-1].statement is Statement.COMMIT


@pytest.mark.parametrize(
    ("message", "statement"),
    [
        (query("COMMIT"), Statement.COMMIT),
        (query("commit;"), Statement.COMMIT),
        (query("PREPARE TRANSACTION 'tallyweir:1'"), Statement.PREPARE),
        (query("COMMIT PREPARED 'tallyweir:1'"), Statement.COMMIT_PREPARED),
        (typed(b"c", b""), Statement.COPY_END),
    ],
)
def test_what_ends_something_has_a_name(message: bytes, statement: Statement) -> None:
    """These are the messages at which a crash is interesting."""
    assert statements(message) == [statement]


@pytest.mark.parametrize(
    "message",
    [
        query("BEGIN"),
        query("ROLLBACK"),
        query("PREPARE plan AS SELECT 1"),
        query("SELECT 'COMMIT'"),
        typed(b"d", b"COMMIT\0"),
        typed(b"X", b""),
    ],
)
def test_nothing_else_has_a_name(message: bytes) -> None:
    """A cut must not happen at a message that only looks like one."""
    assert statements(message) == []


def test_the_commit_of_a_ledger_row_is_a_publication() -> None:
    """Only the transaction that inserts the batch is the decision about it."""
    said = statements(
        query("COMMIT"),
        parse("", LEDGER),
        bind(""),
        EXECUTE,
        query("COMMIT"),
        query("COMMIT"),
    )

    assert said == [Statement.COMMIT, Statement.PUBLISH_COMMIT, Statement.COMMIT]


def test_a_prepared_ledger_row_is_known_by_its_name() -> None:
    """A client prepares what it says often, and says only the name from then on."""
    said = statements(
        parse("s1", LEDGER),
        parse("s2", "SELECT 1"),
        *(bind("s1"), EXECUTE, query("COMMIT")),
        *(bind("s2"), EXECUTE, query("COMMIT")),
    )

    assert said == [Statement.PUBLISH_COMMIT, Statement.COMMIT]


def test_a_rollback_forgets_the_ledger_row() -> None:
    """What was rolled back is not published by the next commit."""
    said = statements(query(LEDGER), query("ROLLBACK"), query("COMMIT"))

    assert said == [Statement.COMMIT]
