"""What an audit must know about a pipeline, read from its row in the home database.

The definition is the one that the last driver registered, so an audit needs neither
the pipeline's file nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from psycopg import Connection, IsolationLevel, sql
from psycopg.errors import UndefinedTable
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, TupleRow, dict_row

from tallyweir.sinks.postgres.ledger.epoch_claims import check_not_discarded
from tallyweir.sinks.postgres.ledger.output_kinds import OutputKind, kind_of
from tallyweir.sinks.postgres.ledger.registered_schemas import read_registered
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.column_names import HEADER_PREFIX, stored_name
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_LEDGER = load_statements("tallyweir.sinks.postgres.ledger", "ledger.sql")
_OUTPUTS = load_statements("tallyweir.sinks.postgres.ledger", "outputs.sql")
#: What references to contracts of a registry hold; an envelope may precede it.
_OF_REGISTRY = "registry:"


#: Types whose values JSON writes without quotation marks.
_NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoss:
    """Rows of an output that an operator has accepted as lost."""

    #: The last batch whose rows are no longer looked for.
    through_sequence: int
    rows: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedOutput:
    """One output of the pipeline, under its name in the ledger."""

    table: str
    kind: OutputKind
    #: Late events are dropped on purpose, so they leave no rows to count.
    drops_late: bool
    #: The databases that hold its table; with several, each row is in one of them.
    databases: tuple[str, ...]
    #: Columns that, with the window, identify a group, as its table calls them; empty
    #: for append outputs.
    by: tuple[str, ...]
    #: How long a window may still be revised, as an interval for Postgres; None for
    #: outputs without windows.
    allowed_lateness: str | None
    #: The newest accepted loss.
    loss: AcceptedLoss | None = None

    @property
    def owing_from(self) -> int:
        """The first batch whose rows are looked for."""
        return 1 if self.loss is None else self.loss.through_sequence + 1

    @property
    def identifier(self) -> sql.Identifier:
        return table_identifier(self.table)

    def quoted(self, connection: Connection[Any]) -> str:
        """Return the name as ``to_regclass`` reads it."""
        return self.identifier.as_string(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSource:
    """Where the pipeline's events come from, by its registered definition."""

    #: Topics that it reads; empty while it has had only batch runs. Its definition then
    #: still names a topic, but Kafka need not have it.
    topics: tuple[str, ...]
    #: Names of contracts, or the paths of their files next to the pipeline file.
    schemas: tuple[str, ...]
    #: How keys are written, as the definition has it; None if they are bytes.
    key: Mapping[str, Any] | None = None
    #: The schemas of the registry that the home keeps, if its contract is one of them.
    registered: tuple[RegisteredSchema, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPipeline:
    """The parts of a pipeline's definition with which an audit compares its tables."""

    name: str
    number: int
    #: The home database's installation id.
    installation: str
    source: AuditedSource
    guarantee: Guarantee
    outputs: tuple[AuditedOutput, ...]
    #: The columns that hold an event's ID, or its parts; none if none do.
    id_columns: tuple[str, ...]
    #: The header that holds the ID; None if no header does.
    id_header: str | None
    #: Whether headers hold more of events than their ID.
    needs_headers: bool
    event_time: str
    #: None when deduplication is off.
    horizon_s: int | None
    bucket_seconds: int
    watermark: datetime | None
    last_sequence: int

    @property
    def id_is_position(self) -> bool:
        """Whether an event's ID is its position in Kafka."""
        return not self.id_columns and self.id_header is None

    @property
    def id_has_source(self) -> bool:
        """Whether IDs are unique only together with the source, as in CloudEvents."""
        return self.id_header == "ce_id"

    def id_in(self, types: Mapping[str, str]) -> sql.Composable | None:
        """Return how a table's columns give the text of an event's ID, as SQL.

        Args:
            types: The table's columns with their types.

        Returns:
            None if the table does not have the ID.
        """
        if not self.id_columns or not types.keys() >= set(self.id_columns):
            return None
        texts = [_as_text(name, types[name]) for name in self.id_columns]
        if len(texts) == 1:
            return texts[0]
        parts = [
            text
            if types[name] in _NUMBERS
            else sql.SQL("to_json({})::text").format(text)
            for name, text in zip(self.id_columns, texts, strict=True)
        ]
        return sql.SQL("('[' || {} || ']')").format(sql.SQL(" || ',' || ").join(parts))

    def canonical_id(self, written: str) -> str:
        """Return an ID as the ledger has it; people may put spaces between parts."""
        if len(self.id_columns) > 1:
            with suppress(ValueError, RecursionError):
                parts = json.loads(written)
                return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
        return written

    @property
    def appends(self) -> tuple[AuditedOutput, ...]:
        return tuple(o for o in self.outputs if o.kind.has_event_rows)

    @property
    def windows(self) -> tuple[AuditedOutput, ...]:
        return tuple(o for o in self.outputs if o.kind.has_windows)

    @property
    def forgotten_before_s(self) -> int | None:
        """Buckets that begin before this may be dropped; None if no bucket may be."""
        if self.horizon_s is None or self.watermark is None:
            return None
        oldest_s = int(self.watermark.timestamp()) - self.horizon_s
        return oldest_s // self.bucket_seconds * self.bucket_seconds


def guarantee_of(definition: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee of a registered definition.

    A definition leaves out the default, as it did before there was another guarantee.
    """
    return Guarantee(definition.get("guarantee", Guarantee.EXACTLY_ONCE))


@contextmanager
def snapshot(connection: Connection[TupleRow], *, doing: str) -> Iterator[None]:
    """Run the block in one snapshot of the database, read-only.

    Raises:
        RetryableError: The server went away.
        ConfigurationError: The role may not read a table.
    """
    assert connection.info.transaction_status == TransactionStatus.IDLE, (
        "an audit inside of a transaction would see uncommitted changes"
    )
    with translated(doing), repeatable_read(connection, read_only=True):
        yield


@contextmanager
def repeatable_read(
    connection: Connection[TupleRow], *, read_only: bool | None = None
) -> Iterator[None]:
    """Run the block in one transaction, which sees the database as it began."""
    former = connection.isolation_level, connection.read_only
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = read_only
    try:
        with connection.transaction():
            yield
    finally:
        if not connection.closed:
            connection.isolation_level, connection.read_only = former


def fetch(
    connection: Connection[TupleRow],
    statement: sql.SQL | sql.Composed,
    **values: object,
) -> list[DictRow]:
    """Return all rows, by column name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, values).fetchall()


def fetch_one(
    connection: Connection[TupleRow],
    statement: sql.SQL | sql.Composed,
    **values: object,
) -> DictRow:
    """Return the row of a statement that returns exactly one."""
    (row,) = fetch(connection, statement, **values)
    return row


def pin_path(connection: Connection[TupleRow]) -> None:
    """Resolve names without a schema to the server's own until the transaction ends."""
    connection.execute(_LEDGER["pin_path"])


def fetch_pipeline(connection: Connection[TupleRow], name: str) -> DictRow:
    """Return the pipeline's row as it is, inside of the caller's transaction.

    Until the transaction ends, functions, operators and tables without a schema are the
    server's.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, which lists the known pipelines,
            ``PIPELINE_DISCARDED``, or ``LEDGER_MISSING``.
    """
    pin_path(connection)
    try:
        rows = fetch(connection, _LEDGER["pipeline_row"], pipeline=name)
    except UndefinedTable as error:
        raise ledger_missing() from error
    if not rows:
        check_not_discarded(connection, name)
        known = [r["pipeline"] for r in fetch(connection, _LEDGER["known_pipelines"])]
        raise ConfigurationError(
            "PIPELINE_UNKNOWN",
            saw=f"The home database has no pipeline {name!r}; it has "
            f"{', '.join(known) or 'none at all'}.",
            why="A pipeline is registered when its driver first starts.",
            fix="Correct the name, or the database that TALLYWEIR_HOME_DSN names.",
        )
    (row,) = rows
    return row


def read_pipeline(connection: Connection[TupleRow], name: str) -> AuditedPipeline:
    """Read the pipeline's row, inside of the caller's snapshot.

    Raises:
        ConfigurationError: As ``fetch_pipeline`` does.
    """
    row = fetch_pipeline(connection, name)
    definition: Mapping[str, Any] = row["definition"]
    source = definition["source"]
    losses = {
        loss.pop("output_table"): AcceptedLoss(**loss)
        for loss in fetch(connection, _LEDGER["accepted_losses"], pipeline=name)
    }
    return AuditedPipeline(
        name=name,
        number=row["pipeline_number"],
        installation=row["installation_id"],
        source=AuditedSource(
            topics=topics_of(definition) if row["is_streamed"] else (),
            schemas=_one_or_more(source["schema"]),
            key=source.get("key"),
            registered=read_registered(connection)
            if _OF_REGISTRY in str(source["schema"])
            else (),
        ),
        guarantee=guarantee_of(definition),
        outputs=tuple(
            replace(_output(entry), loss=losses.get(entry["table"]))
            for entry in definition["outputs"]
        ),
        id_columns=_id_columns(source["event_id"]),
        id_header=source["event_id"].get("header"),
        needs_headers=_needs_headers(definition),
        event_time=source["event_time"],
        horizon_s=row["horizon_s"],
        bucket_seconds=row["bucket_seconds"],
        watermark=row["watermark"],
        last_sequence=row["last_sequence"],
    )


def _id_columns(event_id: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of an ID in a definition; a header alone is no column."""
    if "parts" not in event_id:
        return (event_id["field"],) if "field" in event_id else ()
    return tuple(
        one["field"] if "field" in one else stored_name(HEADER_PREFIX + one["header"])
        for one in event_id["parts"]
    )


def _needs_headers(definition: Mapping[str, Any]) -> bool:
    """Tell whether a definition names a column made of headers.

    A text that only looks like such a name counts too.
    """
    parts = definition["source"]["event_id"].get("parts", ())
    text = json.dumps(definition)
    named = any(mark in text for mark in (HEADER_PREFIX, "kafka_headers"))
    return named or any("header" in one for one in parts)


def _as_text(column: str, kind: str) -> sql.Composable:
    """Write a column's values as the ledger writes IDs."""
    name = sql.Identifier(column)
    if kind == "text":
        # Without a cast, Postgres can use an index on the column.
        return name
    if kind == "bytea":
        return sql.SQL("encode({}, 'hex')").format(name)
    return sql.SQL("{}::text").format(name)


def accepted_losses(outputs: Iterable[AuditedOutput]) -> str:
    """Say which rows of some outputs are accepted as lost; empty without a loss."""
    return "; ".join(
        f"{one.loss.rows} rows of {one.table} through batch "
        f"{one.loss.through_sequence} were accepted as lost: {one.loss.reason}"
        for one in outputs
        if one.loss is not None
    )


def ledger_missing() -> ConfigurationError:
    """Return the error for a database that is not a home yet."""
    return ConfigurationError(
        "LEDGER_MISSING",
        saw="The database has no table tallyweir.pipeline.",
        why="The first driver that starts creates the ledger; none has started with "
        "this database.",
        fix="Start a pipeline, or correct the database that TALLYWEIR_HOME_DSN names.",
    )


def read_source(connection: Connection[TupleRow], name: str) -> AuditedSource:
    """Read where the pipeline's events come from, in a snapshot of its own.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading a pipeline's definition"):
        return read_pipeline(connection, name).source


def read_positions(
    connection: Connection[TupleRow], pipeline: str
) -> dict[TopicPartition, int]:
    """Read the next offset of every partition."""
    return {
        TopicPartition(row["topic"], row["partition"]): row["next_offset"]
        for row in fetch(connection, _OUTPUTS["next_offsets"], pipeline=pipeline)
    }


def read_topic_ids(connection: Connection[TupleRow], name: str) -> dict[str, str]:
    """Read the Kafka id of each topic that the pipeline has read, in a snapshot.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading a pipeline's topics"):
        read_pipeline(connection, name)
        rows = fetch(connection, _LEDGER["topic_ids"], pipeline=name)
    return {row["topic"]: row["topic_id"] for row in rows}


def read_next_offsets(
    connection: Connection[TupleRow], name: str
) -> dict[TopicPartition, int]:
    """Read the offsets where the pipeline reads on in Kafka, in its own snapshot.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading a pipeline's offsets"):
        read_pipeline(connection, name)
        return dict(streamed(read_positions(connection, name)))


def topics_of(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the topics that a registered definition names."""
    return _one_or_more(definition["source"]["topic"])


def _one_or_more(written: str | list[str]) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(written)


def _output(definition: Mapping[str, Any]) -> AuditedOutput:
    return AuditedOutput(
        table=definition["table"],
        kind=kind_of(definition),
        drops_late=definition.get("late") == "drop",
        databases=tuple(definition.get("databases", (HOME,))),
        by=tuple(map(stored_name, definition.get("by", ()))),
        allowed_lateness=definition.get("allowed_lateness"),
    )
