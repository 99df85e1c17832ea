"""What the home database says while a driver works: the demo's only authority."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition

_SQL = load_statements("tallyweir.services.dev.demo", "ledger.sql")

AIRLINES = "airlines"
TABLES = (
    AIRLINES,
    "departures",
    "departures_by_hour",
    "departures_by_hour_revisions",
)


class Ledger:
    """A pipeline's state, which every call reads again.

    Args:
        connection: A connection in autocommit, so that no call sees an old snapshot.
        pipeline: Its name.
    """

    def __init__(self, connection: Connection[TupleRow], pipeline: str) -> None:
        self._connection = connection
        self._pipeline = {"pipeline": pipeline}

    def read_last_sequence(self) -> int:
        """Return the number of the batch that was published last, or 0.

        Waits for a publish transaction that is under way, even one of a dead driver.
        """
        with translated("reading the ledger"):
            row = self._connection.execute(
                _SQL["last_sequence"], self._pipeline
            ).fetchone()
        return 0 if row is None else int(row[0])

    def read_positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to read, for each partition."""
        with translated("reading the ledger"):
            rows = self._connection.execute(
                _SQL["positions"], self._pipeline
            ).fetchall()
        return {TopicPartition(topic, part): offset for topic, part, offset in rows}

    def read_visible_positions(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset below which all results are visible.

        Visible means in every database. The result is empty before the pipeline's first
        start.
        """
        with translated("reading the ledger"):
            rows = self._connection.execute(
                _SQL["visible_positions"], self._pipeline
            ).fetchall()
        return {TopicPartition(topic, part): offset for topic, part, offset in rows}

    def read_repeated_id(self) -> str:
        """Return the ID of an event that came more than once; empty if none did."""
        with translated("reading the repeats"):
            row = self._connection.execute(
                _SQL["repeated_id"], self._pipeline
            ).fetchone()
        return "" if row is None else str(row[0])


def refuse_used_database(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse a database that already has the demo's tables or its pipeline.

    Raises:
        ConfigurationError: ``DEMO_DATABASE_IN_USE``.
    """
    with translated("looking for the demo's tables"):
        rows = connection.execute(
            _SQL["tables_there"], {"tables": list(TABLES)}
        ).fetchall()
        found = [f"table {name}" for (name,) in rows]
        if _is_true(connection, "ledger_there") and _is_true(
            connection, "pipeline_there", pipeline=pipeline
        ):
            found.append(f"pipeline {pipeline}")
    if found:
        raise ConfigurationError(
            "DEMO_DATABASE_IN_USE",
            saw=f"The home database already has {', '.join(found)}.",
            why="The demo counts from zero and does not touch tables that it did not "
            "create.",
            fix="Let TALLYWEIR_HOME_DSN name an empty database (createdb demo), or "
            "unset it: the demo then brings its own server.",
        )


def create_airlines(
    connection: Connection[TupleRow], airlines: Sequence[tuple[str, str]]
) -> None:
    """Create the lookup table that the pipeline enriches with.

    Crash:
        The table exists with all of its rows, or not at all.
    """
    with (
        translated("making the lookup table"),
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        cursor.execute(_SQL["create_airlines"])
        cursor.executemany(_SQL["insert_airline"], airlines)


def _is_true(
    connection: Connection[TupleRow], statement: str, **values: object
) -> bool:
    row = connection.execute(_SQL[statement], values).fetchone()
    return row is not None and bool(row[0])
