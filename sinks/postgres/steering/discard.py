"""Discards a pipeline that works in the shadow, with all that is its own, for good.

Such a pipeline is a fork that is not wanted in front or, after a switch, the former
version. The discard drops its shadow tables, windows, keyed state, seen IDs, snapshots
and staging, and deletes every row of Tallyweir's own tables that names it. A note of
who did it and why stays. So does the name, which no pipeline has until an operator
forks under it.

The discard claims no epoch: a driver of the pipeline notices because it does not find
the pipeline's row any more. Tables that readers know are never a shadow, and are never
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import Connection, Rollback, sql
from psycopg.errors import DependentObjectsStillExist
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.faultpoints import ActPoint, making
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    fetch_pipeline,
    read_pipeline,
)
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.naming import (
    HOME,
    branch_prefix,
    revisions_table,
    runs_of_pipeline,
    staging_schema_pattern,
    state_table_pattern,
)
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import (
    ActRequest,
    check_reason,
    hold_snapshots,
)
from tallyweir.sinks.postgres.steering.forked_rows import COPIED, NOT_COPIED
from tallyweir.sinks.postgres.steering.offset_reset import check_nothing_in_doubt
from tallyweir.sinks.postgres.steering.snapshot import (
    Snapshot,
    delete_snapshot,
    read_snapshots,
)
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.postgres.tables.table_owners import TableOwner
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.steering", "discard.sql")
_ACT = load_statements("tallyweir.sinks.postgres.steering", "act.sql")
_CLAIM = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")

#: The note stays, the catalog loses a partition, and the pipeline's row goes last.
_OTHERWISE = ("discarded_pipeline", "seen_id_run", "pipeline")
#: Own tables that lose their rows of the pipeline, each before those that it refers to.
#: A relay's cursor comes before its messages, because a relay locks them in that order.
EMPTIED = (
    *(t for t in (*reversed(NOT_COPIED), *reversed(COPIED)) if t not in _OTHERWISE),
    "pipeline",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The effects of a discard, done or planned.

    Attributes:
        front: The pipeline whose tables it shadowed; None if no pipeline writes them.
        batches: Batches in its ledger, including those from before it was forked.
        committed: Events that these batches committed.
        rows: How many rows went, by table: shadows, then Tallyweir's own tables.
        bytes: Size of the dropped tables, with their indexes.
        unrelayed: Dead letters and messages that the relay has yet to send.
        left: Tables that it wrote under the names that readers know.
    """

    pipeline: str
    front: str | None
    batches: int
    committed: int
    rows: Mapping[str, int]
    bytes: int
    unrelayed: int
    left: tuple[str, ...]


def discard(connection: Connection[TupleRow], request: ActRequest) -> Discarded:
    """Discard a pipeline that works in the shadow, in one transaction.

    Its driver ends with ``PIPELINE_DISCARDED`` at its next look, plan or publish, and
    so does every start of its file.

    Args:
        connection: To the home, outside a transaction, as the tables' owner.
        request: The pipeline, and why.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``PIPELINE_DISCARDED``,
            ``REASON_MISSING``, ``DISCARD_NOT_SHADOWED``, ``DISCARD_ELSEWHERE`` or
            ``DISCARD_DEPENDED_ON``.
        RetryableError: ``BATCH_IN_DOUBT``, ``SNAPSHOT_AT_WORK``; a reader holds a
            table, or a publish holds the pipeline's row, for too long; or the server
            went away.

    Crash:
        Before the COMMIT the pipeline is as it was, and its driver has not noticed;
        after it only the note is left.
    """
    check_reason(request.reason)
    with (
        translated("discarding a pipeline"),
        making(ActPoint.IN_FORCE),
        connection.transaction(),
    ):
        fetch_pipeline(connection, request.pipeline)
        timeout = f"{request.lock_timeout_ms}ms"
        fetch(connection, _ACT["begin_settings"], timeout=timeout)
        hold_snapshots(connection, request.pipeline)
        with making(ActPoint.PIPELINE_HELD):
            for hold in ("hold_pipeline", "hold_claims"):
                connection.execute(_SQL[hold], {"pipeline": request.pipeline})
        # Read it now: a transaction that was waited for may have changed or removed it.
        pipeline = read_pipeline(connection, request.pipeline)
        hold_tables(connection, pipeline)
        done = _Discard(connection, pipeline).run(request.reason)
        if request.dry_run:
            raise Rollback
    return done


class _Discard:
    """One discard of a pipeline; nothing else changes the pipeline until its end."""

    def __init__(
        self, connection: Connection[TupleRow], pipeline: AuditedPipeline
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._shadows = read_shadow_tables(connection, pipeline.name)
        self._check()

    def run(self, reason: str) -> Discarded:
        """Note the discard, delete its rows, and drop the pipeline's own tables.

        Steps that other sessions may have to wait for come last.
        """
        own = dict(self._find_present(self._shadows.values()))
        left = sorted(name for name, _ in self._find_present(self._known()))
        tables = [*own.values(), *self._state_tables()]
        staging = self._staging()
        snapshots = read_snapshots(self._connection, self._pipeline.name)
        size = self._measure(tables, staging) + sum(one.bytes for one in snapshots)
        unrelayed = self._fetch_one("unrelayed")["messages"]
        rows = {name: self._count_rows(table) for name, table in own.items()}
        with making(ActPoint.NOTED):
            note = self._fetch_one(
                "note_discarded", reason=reason, fronts=list(self._shadows)
            )
        rows |= self._empty(snapshots)
        self._drop(tables, staging)
        return Discarded(
            pipeline=self._pipeline.name,
            **note,
            rows={table: count for table, count in rows.items() if count},
            bytes=size,
            unrelayed=unrelayed,
            left=tuple(left),
        )

    def _check(self) -> None:
        name = self._pipeline.name
        if not self._shadows:
            raise ConfigurationError(
                "DISCARD_NOT_SHADOWED",
                saw=f"{name} does not work in the shadow of another pipeline.",
                why="Readers use its tables, and discard never removes those.",
                fix="Name a fork; or let a fork take its place first: tallyweir "
                f"switch {name} FORK.",
            )
        away = [o.table for o in self._pipeline.outputs if set(o.databases) != {HOME}]
        if away:
            raise ConfigurationError(
                "DISCARD_ELSEWHERE",
                saw=f"{name} writes {', '.join(away)} in other databases.",
                why="Prepared branches there would have no owner and would keep "
                "their locks.",
                fix="Update it to a file without these outputs, let the resolver "
                "finish the prepared branches there, then discard it.",
            )
        check_nothing_in_doubt(self._connection, name)
        prefix = branch_prefix(self._pipeline.installation, self._pipeline.number)
        prepared = self._fetch_one("prepared", prefix=prefix)["branches"]
        if prepared:
            raise RetryableError(
                "BATCH_IN_DOUBT",
                saw=f"{prepared} branches of {name} are prepared on the home's server.",
                why="The branches would have no owner and would keep their locks.",
                fix="Stop its driver, let the resolver finish them, then try again.",
            )

    def _fetch_one(self, statement: str, **values: object) -> DictRow:
        return fetch_one(
            self._connection,
            _SQL[statement],
            pipeline=self._pipeline.name,
            **values,
        )

    def _known(self) -> list[str]:
        """Return the tables that it writes under the names that readers know."""
        return [
            output.table
            for output in self._pipeline.outputs
            if output.kind.has_table and output.table not in self._shadows.values()
        ]

    def _find_present(
        self, tables: Iterable[str]
    ) -> Iterator[tuple[str, sql.Identifier]]:
        """Yield those tables that exist, and their tables of revisions."""
        named = {
            name: table_identifier(name)
            for table in tables
            for name in (table, revisions_table(table))
        }
        quoted = {self._quoted(one): name for name, one in named.items()}
        for row in fetch(self._connection, _SQL["present"], tables=list(quoted)):
            name = quoted[row["name"]]
            yield name, named[name]

    def _state_tables(self) -> list[sql.Identifier]:
        pattern = state_table_pattern(self._pipeline.number)
        rows = fetch(self._connection, _SQL["state_tables"], pattern=pattern)
        return [sql.Identifier("tallyweir_state", row["name"]) for row in rows]

    def _staging(self) -> list[str]:
        pattern = staging_schema_pattern(self._pipeline.number)
        rows = fetch(self._connection, _CLAIM["staging_schemas"], pattern=pattern)
        return [row["nspname"] for row in rows]

    def _measure(self, tables: Iterable[sql.Identifier], staging: list[str]) -> int:
        row = fetch_one(
            self._connection,
            _SQL["bytes"],
            tables=[self._quoted(table) for table in tables],
            runs=self._quoted(self._runs),
            schemas=staging,
        )
        return int(row["bytes"])

    def _count_rows(self, table: sql.Identifier) -> int:
        statement = _SQL["count_rows"].format(table=table)
        return int(fetch_one(self._connection, statement)["rows"])

    def _empty(self, snapshots: Sequence[Snapshot]) -> dict[str, int]:
        """Delete every row of own tables that names the pipeline; count by table."""
        for snapshot in snapshots:
            delete_snapshot(self._connection, snapshot)
        rows = {"tallyweir.snapshot": len(snapshots)}
        for table in EMPTIED:
            deleted = self._connection.execute(
                _SQL["delete_rows"].format(table=sql.Identifier("tallyweir", table)),
                {"pipeline": self._pipeline.name},
            )
            name = f"tallyweir.{table}"
            rows[name] = rows.get(name, 0) + deleted.rowcount
        owner = TableOwner(
            installation=self._pipeline.installation, pipeline=self._pipeline.name
        )
        owner.release(self._connection, ())
        return rows

    def _drop(self, tables: Iterable[sql.Identifier], staging: Iterable[str]) -> None:
        for schema in staging:
            # This waits for tasks at work; no other session uses the schema.
            self._connection.execute(
                _CLAIM["drop_staging"].format(schema=sql.Identifier(schema))
            )
        self._connection.execute(_ACT["hurry"])
        for table in (*tables, self._runs):
            try:
                self._connection.execute(_SQL["drop_table"].format(table=table))
            except DependentObjectsStillExist as error:
                detail = " ".join((error.diag.message_detail or "").split())
                raise ConfigurationError(
                    "DISCARD_DEPENDED_ON",
                    saw=f"Another object depends on {self._quoted(table)}: {detail}.",
                    why="A dependent object follows the table when it is renamed, "
                    "and readers may use it.",
                    fix="Recreate the view on the table that readers use, or drop "
                    "it; let that table own the sequence of a default (ALTER "
                    "SEQUENCE ... OWNED BY ...); then try again.",
                ) from error

    @property
    def _runs(self) -> sql.Identifier:
        return sql.Identifier("tallyweir", runs_of_pipeline(self._pipeline.number))

    def _quoted(self, table: sql.Identifier) -> str:
        return table.as_string(self._connection)
