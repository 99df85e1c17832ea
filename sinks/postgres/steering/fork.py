"""Forks a pipeline: another one goes on from where it stands, in tables of its own.

The fork copies what the home keeps of the pipeline from one snapshot: ledger, offsets,
watermark, seen IDs, windows, keyed state, side tables and the rows of its results. The
pipeline itself is neither stopped nor kept waiting. The fork is a pipeline like any
other, except for its tables: it writes to the shadow of each table in its file, until
``switch`` lets the two change places.

A pipeline is refused if a table of its has what a shadow would lack in its place.
Row-level security matters most: a table without it shows each reader every row.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, Rollback, sql
from psycopg.errors import UndefinedTable
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tallyweir.sinks.faultpoints import ActPoint, making
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    repeatable_read,
)
from tallyweir.sinks.postgres.server.columns import qualified, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME, revisions_table
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import ActRequest, check_reason
from tallyweir.sinks.postgres.steering.forked_rows import (
    COPIED,
    Copy,
    PresentTables,
    copy_ours,
    copy_pipeline,
    copy_results,
    copy_seen_ids,
    draw_moves,
    find_present,
    rename_definitions,
)
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.guarantee import Guarantee

_SQL = load_statements("tallyweir.sinks.postgres.steering", "fork.sql")
_ACT = load_statements("tallyweir.sinks.postgres.steering", "act.sql")

#: The names that pipeline files allow.
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NAME_BYTES_MAX = 63 - len("_revisions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A fork as it was made, or would be.

    Attributes:
        pipeline: The fork's name.
        of: The pipeline from which it goes on.
        last_sequence: The batch after which it goes on.
        shadows: Its tables, by those of the pipeline; includes those that begin empty.
        rows: How many rows were copied into each table.
    """

    pipeline: str
    of: str
    last_sequence: int
    shadows: Mapping[str, str]
    rows: Mapping[str, int]


def fork(
    connection: Connection[TupleRow],
    request: ActRequest,
    new: str,
    *,
    empty: Iterable[str] = (),
) -> Fork:
    """Let another pipeline go on from where one stands, in tables of its own.

    Args:
        connection: To the home, as the owner of its tables.
        request: The pipeline, and why.
        new: The fork's name, which no pipeline has yet.
        empty: Outputs whose tables and windows begin empty, because the fork defines
            them differently.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``, ``FORK_NAME``,
            ``FORK_NAME_TAKEN``, ``FORK_UNFIT`` or ``FORK_OUTPUT_UNKNOWN``.
        RetryableError: ``FORK_TABLES_CHANGED``; another session renames or drops a
            table for too long; or the server went away.

    Crash:
        Before the COMMIT there is no fork; after it the fork is complete. The pipeline
        that it was forked from is the same in both cases.
    """
    check_reason(request.reason)
    left_out = tuple(empty)
    with translated("forking a pipeline"):
        with connection.transaction():
            pipeline = read_pipeline(connection, request.pipeline)
            found = find_present(connection, pipeline, _copied(pipeline, left_out))
        with (
            making(ActPoint.IN_FORCE),
            _one_snapshot(connection, request, found),
        ):
            made = _fork(connection, request, new, left_out, found)
            if request.dry_run:
                raise Rollback
    return made


@contextmanager
def _one_snapshot(
    connection: Connection[TupleRow], request: ActRequest, found: PresentTables
) -> Iterator[None]:
    """Run the block in one snapshot, in which tables keep the names that they have.

    The snapshot leaves out batches published meanwhile. Postgres looks up names in the
    newest catalog, whatever a transaction sees, so the tables are locked first.
    """
    with repeatable_read(connection):
        timeout = sql.Literal(f"{request.lock_timeout_ms}ms")
        connection.execute(_SQL["set_lock_timeout"].format(timeout=timeout))
        if found.tables:
            tables = sql.SQL(", ").join(found.tables)
            try:
                connection.execute(_SQL["keep_tables"].format(tables=tables))
            except UndefinedTable as error:
                raise _tables_changed(request.pipeline) from error
        yield


def _copied(pipeline: AuditedPipeline, empty: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(o.table for o in pipeline.outputs if o.table not in empty)


def _tables_changed(pipeline: str) -> RetryableError:
    return RetryableError(
        "FORK_TABLES_CHANGED",
        saw=f"Tables of pipeline {pipeline} were created, renamed or dropped while "
        "the fork began.",
        why="The fork's rows and its ledger would come from different tables.",
        fix="Try again.",
    )


def _fork(
    connection: Connection[TupleRow],
    request: ActRequest,
    new: str,
    empty: tuple[str, ...],
    found: PresentTables,
) -> Fork:
    pipeline = read_pipeline(connection, request.pipeline)
    hold_tables(connection, pipeline)
    if find_present(connection, pipeline, _copied(pipeline, empty)) != found:
        raise _tables_changed(pipeline.name)
    _check_fit(connection, pipeline, new, empty)
    written = read_shadow_tables(connection, pipeline.name)
    fronts = {shadow: front for front, shadow in written.items()}
    shadows = {
        output.table: shadow_of(fronts.get(output.table, output.table), new)
        for output in pipeline.outputs
    }
    copied = {t: s for t, s in shadows.items() if t not in empty}
    number = copy_pipeline(connection, pipeline.name, new)
    copy = Copy(
        pipeline=pipeline.name,
        fork=new,
        tables=copied,
        moves=draw_moves(connection, pipeline.name),
    )
    for ours in COPIED:
        copy_ours(connection, ours, copy)
    rename_definitions(connection, new, copied, without=empty)
    connection.execute(_SQL["relayed_already"], {"pipeline": new})
    for table, shadow in shadows.items():
        values = {"front": fronts.get(table, table), "shadow": shadow}
        connection.execute(_SQL["insert_shadow"], {"pipeline": new, **values})
    _own_shadows(connection, pipeline, new, shadows)
    rows = {
        shadow: copy_results(connection, pipeline, found, number, table, shadow)
        for table, shadow in copied.items()
    }
    copy_seen_ids(connection, pipeline.name, new, number)
    _note(connection, request, new, pipeline.last_sequence)
    return Fork(
        pipeline=new,
        of=pipeline.name,
        last_sequence=pipeline.last_sequence,
        shadows={fronts.get(t, t): s for t, s in shadows.items()},
        rows=rows,
    )


def _own_shadows(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    new: str,
    shadows: Mapping[str, str],
) -> None:
    """Make the fork own its tables, including those that it has yet to create."""
    windows = {output.table for output in pipeline.windows}
    owned = list(shadows.values())
    owned += [revisions_table(s) for table, s in shadows.items() if table in windows]
    for name in owned:
        values = {"pipeline": new, "relation": qualified(name)}
        connection.execute(_SQL["own_shadow"], values)


def shadow_of(table: str, pipeline: str) -> str:
    """Name the table in which a pipeline keeps what its file calls ``table``."""
    return f"{table}__{pipeline.replace('-', '_')}"


def _check_fit(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    new: str,
    empty: tuple[str, ...],
) -> None:
    if not _NAME.fullmatch(new):
        raise ConfigurationError(
            "FORK_NAME",
            saw=f"{new!r} is not a valid pipeline name.",
            why="Tallyweir would refuse a pipeline file with that name.",
            fix="Use lower-case letters, digits, - and _, starting with a letter, at "
            "most 40 characters.",
        )
    if fetch(connection, _SQL["pipeline"], pipeline=new):
        raise ConfigurationError(
            "FORK_NAME_TAKEN",
            saw=f"The home database already has a pipeline {new}.",
            why="The fork would take over that pipeline's tables and state.",
            fix="Give the fork another name.",
        )
    known = [output.table for output in pipeline.outputs]
    unknown = [table for table in empty if table not in known]
    if unknown:
        raise ConfigurationError(
            "FORK_OUTPUT_UNKNOWN",
            saw=f"Pipeline {pipeline.name} has no output {', '.join(unknown)}; it has "
            f"{', '.join(known)}.",
            why="Only an output of the pipeline can start empty.",
            fix="Correct --empty.",
        )
    reasons = list(_unfit(connection, pipeline, new))
    if reasons:
        raise ConfigurationError(
            "FORK_UNFIT",
            saw=f"Pipeline {pipeline.name} {'; it '.join(reasons)}.",
            why="A fork could not keep its rows in its own tables, or could not take "
            "this pipeline's place in one transaction without loss to readers.",
            fix="Run the new version in parallel, under another name and into other "
            "tables, from the start of the topic (docs/batch.md, In shadow "
            "tables).",
        )


def _unfit(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, new: str
) -> Iterator[str]:
    if pipeline.guarantee is Guarantee.AT_LEAST_ONCE:
        yield "writes at least once"
    if any(output.kind.sends_messages for output in pipeline.outputs):
        yield "sends messages, which a shadow must not"
    if any(set(output.databases) != {HOME} for output in pipeline.outputs):
        yield "writes to other databases"
    row = fetch_one(connection, _SQL["pipeline"], pipeline=pipeline.name)
    definition: Mapping[str, Any] = row["definition"]
    branches = fetch_one(connection, _SQL["branches"], pipeline=pipeline.name)
    is_split = any(output.get("branches", 1) > 1 for output in definition["outputs"])
    if is_split or branches["exist"]:
        yield "publishes in branches, or did"
    if any(output.get("metrics") for output in definition["outputs"]):
        yield "has a view of metrics"
    for output in pipeline.outputs:
        yield from _unfit_table(connection, output.table, new)


def _unfit_table(
    connection: Connection[TupleRow], table: str, new: str
) -> Iterator[str]:
    name = shadow_of(table, new).rsplit(".", 1)[-1]
    if len(name.encode()) > _NAME_BYTES_MAX:
        yield f"has a table for which {name} is too long"
    taken = fetch_one(
        connection,
        _SQL["table_exists"],
        table=table_identifier(shadow_of(table, new)).as_string(connection),
        relation=qualified(shadow_of(table, new)),
    )
    if taken["exists"]:
        yield f"has a table whose shadow {name} exists already"
    for told in (table, revisions_table(table)):
        for what in left_behind(connection, table_identifier(told)):
            yield f"has {what} on {told}, which a shadow would not have"


def _note(
    connection: Connection[TupleRow], request: ActRequest, new: str, sequence: int
) -> None:
    """Note the fork as the first act on the new pipeline."""
    claim = fetch_one(
        connection,
        _SQL["claimed"],
        pipeline=new,
        host=socket.gethostname(),
        process_id=os.getpid(),
    )
    values = {
        "pipeline": new,
        "epoch": claim["epoch"],
        "kind": request.kind,
        "reason": request.reason,
        "after_sequence": sequence,
        "detail": Jsonb({"of": request.pipeline}),
    }
    with making(ActPoint.NOTED):
        connection.execute(_ACT["note_act"], values)


_LEFT_BEHIND = load_statements("tallyweir.sinks.postgres.steering", "left_behind.sql")


def left_behind(connection: Connection[TupleRow], table: sql.Identifier) -> list[str]:
    """Name the security, triggers and rules of a table, and foreign keys at either end.

    Postgres does not copy these with a table, and they do not follow its name. The list
    is empty if there is no table. If the caller holds the table in ACCESS EXCLUSIVE
    mode, the answer stays true until the end of the transaction.
    """
    quoted = table.as_string(connection)
    return [
        str(r["what"])
        for r in fetch(connection, _LEFT_BEHIND["left_behind"], table=quoted)
    ]
