"""Result tables with one row per window of event time and group.

``window_merge`` adds to open windows and closes them. A view of metrics shows such a
table with a row for each window, group and aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import WINDOW, OutputKind
from tallyweir.sinks.postgres.outputs.output import (
    MovedRows,
    ReplayPart,
    StagedField,
    VotedRows,
    fields_of_events,
    others,
)
from tallyweir.sinks.postgres.outputs.result_tables import create_or_check, read_columns
from tallyweir.sinks.postgres.outputs.window_columns import (
    REVISION_COLUMNS,
    WINDOW_EVENTS,
    WindowColumns,
)
from tallyweir.sinks.postgres.outputs.window_merge import WindowMerge
from tallyweir.sinks.postgres.server.columns import (
    Column,
    names,
    names_and_types,
    table_identifier,
)
from tallyweir.sinks.postgres.server.naming import TableNames, revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.row_digest import RESULTS, REVISIONS
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.votes import OutputTally

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "window_table.sql")

_Connection = psycopg.Connection[TupleRow]

#: The bytes that the suffix of the revisions table leaves of 63.
_REVISED_NAME_BYTES_MAX = 63 - len("_revisions")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTable(WindowColumns):
    """One row per window and group, or several rows with some of its events each."""

    kind: ClassVar[OutputKind] = WINDOW
    clock_part: ClassVar[str] = "windows"
    follows_watermark: ClassVar[bool] = True
    stages_events: ClassVar[bool] = False

    @property
    def read_columns(self) -> tuple[Column, ...]:
        return self.by

    @property
    def index_key(self) -> tuple[Column, ...]:
        return self.by

    @property
    def staged_fields(self) -> tuple[StagedField, ...]:
        events = WINDOW_EVENTS.column.name
        return (
            *fields_of_events(self.state_keys),
            StagedField(events, "events", made_as=events),
            *(
                StagedField(
                    part.column.name,
                    f"{one.column.name}.{part.column.name.rpartition('_')[2]}",
                    made_as=one.column.name,
                )
                for one in self.aggregates
                for part in one.partials
                if not part.is_place
            ),
        )

    @property
    def approximate_columns(self) -> frozenset[str]:
        return frozenset(
            column.name
            for one in self.sketched
            for column in (one.column, *(part.column for part in one.partials))
        )

    @property
    def summed_columns(self) -> tuple[Column, ...]:
        return (*self.result_columns, *self.staging_columns)

    @property
    def shows_after_us(self) -> int | None:
        return self.early_us or None

    def kept_tables(self, names: TableNames) -> Iterator[sql.Identifier]:
        yield table_identifier(self.table)
        yield names.state(self.table)
        if self.keeps_revisions:
            yield table_identifier(revisions_table(self.table))

    def create(
        self, connection: _Connection, state: Callable[[str], sql.Identifier]
    ) -> None:
        if create_or_check(connection, self.table, self.result_columns):
            self._execute(connection, "add_window_key")
            self._execute(connection, "add_open_windows_index")
            if not self.discards:
                self._execute(connection, "leave_room")
        else:
            self.check(connection)
        if self.keeps_revisions:
            self._create_revisions(connection)
        if self.metrics is not None:
            create_metrics_view(connection, self, self.metrics)
        self._create_state(connection, state(self.table))

    def check(self, connection: _Connection) -> None:
        row = connection.execute(
            _SQL["has_window_key"],
            {
                "table": table_identifier(self.table).as_string(connection),
                "keys": sorted(column.name for column in self.result_keys),
            },
        ).fetchone()
        if row is None:
            keys = ", ".join(column.name for column in self.result_keys)
            raise ConfigurationError(
                "TABLE_KEY_MISSING",
                saw=f"Table {self.table} exists without a unique key over ({keys}).",
                why="Windows are updated in place, one row per window and group.",
                fix=f"ALTER TABLE {self.table} ADD UNIQUE NULLS NOT DISTINCT ({keys});",
            )

    def _create_revisions(self, connection: _Connection) -> None:
        if len(self.table.rsplit(".", 1)[-1].encode()) > _REVISED_NAME_BYTES_MAX:
            raise ConfigurationError(
                "TABLE_NAME_TOO_LONG",
                saw=f"The window table {self.table} keeps revisions.",
                why="The name of its revisions table would exceed 63 bytes.",
                fix=f"Name it with at most {_REVISED_NAME_BYTES_MAX} bytes.",
            )
        create_or_check(connection, revisions_table(self.table), self.revision_columns)

    def _create_state(self, connection: _Connection, state: sql.Identifier) -> None:
        definitions = [
            *(column.definition for column in self.state_keys),
            *(partial.definition for partial in self.partials),
        ]
        connection.execute(
            _SQL["create_state"].format(
                state=state,
                definitions=sql.SQL(", ").join(definitions),
                keys=names(self.keys),
            )
        )
        found = read_columns(connection, state)
        # The order does not matter: an update adds new columns after the old ones.
        if {column.name for column in self.staging_columns} != {n for n, *_ in found}:
            raise ConfigurationError(
                "WINDOW_CHANGED",
                saw=f"The open windows of {self.table} belong to another definition "
                "of its keys or aggregates.",
                why="Their partial results cannot be continued.",
                fix="Give the changed output another table, or the pipeline another "
                "name.",
            )

    def _execute(self, connection: _Connection, statement: str) -> None:
        connection.execute(
            _SQL[statement].format(
                target=table_identifier(self.table), keys=names(self.result_keys)
            )
        )

    def move(self, voted: VotedRows, staged: str) -> MovedRows:
        merge = WindowMerge(
            voted.connection,
            self,
            voted.values,
            staging=voted.tables.staging(staged),
            state=voted.tables.state(self.table),
        )
        moved = 0
        if voted.voted(staged):
            # The merge groups rows, so its row count says nothing about staged ones.
            moved = voted.count(staged)
            voted.check_moved(staged, moved)
            tally = voted.tally.outputs.get(self.table, OutputTally())
            merge.run(is_revised=tally.revised > 0)
        if self.waits:
            merge.show_waiting()
        if voted.values["watermark_after"] != voted.values["watermark_before"]:
            merge.settle()
        voted.check_types(self.tables)
        digests = {RESULTS: merge.settled, REVISIONS: merge.revisions}
        return MovedRows(
            staged=moved,
            digests={kind: one for kind, one in digests.items() if one.rows},
        )

    def described(self) -> dict[str, Any]:
        revisions = revisions_table(self.table) if self.keeps_revisions else None
        return {
            "columns": names_and_types(self.result_columns),
            "revisions": revisions,
            "windows": asdict(self.windows),
            "keys": names_and_types(self.keys),
            "allowed_lateness_us": self.allowed_lateness_us,
            "discards": self.discards,
            "waits": self.waits,
            "aggregates": [
                {
                    "column": one.column.name,
                    "type": one.column.postgres_type,
                    "function": one.function.value,
                    "number": one.number,
                    "state": names_and_types(
                        partial.column for partial in one.partials
                    ),
                }
                for one in self.aggregates
            ],
            # Name, type, and whether it is compared by bytes.
            "state": [
                *(
                    [name, kind, False]
                    for name, kind in names_and_types(self.state_keys)
                ),
                *(
                    [one.column.name, one.column.postgres_type, one.is_bytewise]
                    for one in self.partials
                ),
            ],
        }

    def knowing(
        self, closed_through_us: int | None, known_after_us: Mapping[str, int]
    ) -> Self:
        return replace(
            self,
            closed_through_us=closed_through_us,
            aggregates=tuple(
                replace(one, known_after_us=known_after_us.get(one.column.name))
                for one in self.aggregates
            ),
        )

    def replay_parts(self) -> Iterator[ReplayPart]:
        keys = tuple(column.name for column in self.result_keys)
        said = others(self.result_columns, keys)
        yield ReplayPart(
            name=self.table,
            table=self.table,
            keys=keys,
            said=said,
            needs_all=True,
            lateness_us=self.allowed_lateness_us,
        )
        if self.keeps_revisions:
            revised_in = REVISION_COLUMNS[0].name
            keys = (*keys, revised_in)
            yield ReplayPart(
                name=revisions_table(self.table),
                table=revisions_table(self.table),
                keys=keys,
                said=said,
                needs_all=True,
                written_in=revised_in,
            )
        keys = tuple(column.name for column in self.keys)
        yield ReplayPart(
            name=f"open windows of {self.table}",
            table=self.table,
            keys=keys,
            said=others(self.staging_columns, keys),
            is_state=True,
            needs_all=True,
        )


_METRICS_VIEW = load_statements("tallyweir.sinks.postgres.outputs", "metrics_view.sql")
_NUMBERS = frozenset({"bigint", "integer", "smallint", "numeric", "double precision"})


def create_metrics_view(
    connection: psycopg.Connection[TupleRow], output: WindowColumns, view: str
) -> None:
    """Create the view as the output is defined now; the caller commits.

    Its columns are ``timestamp``, where the window ends, ``metric_name``, ``value`` as
    numeric, ``dimensions`` as jsonb and ``window_start``. A view with this definition
    is left alone, so that a role without the right to change the schema can start.

    Raises:
        ConfigurationError: ``METRICS_EMPTY``: no aggregate is a number;
            ``TABLE_DIFFERS``: something else has the name.
    """
    statement = _view_definition(connection, output, view)
    name = table_identifier(view)
    found = connection.execute(
        _METRICS_VIEW["read_definition"], {"view": name.as_string(connection)}
    ).fetchone()
    if found == (statement,):
        return
    try:
        with connection.transaction():
            connection.execute(statement.encode())
            connection.execute(
                _METRICS_VIEW["describe"].format(
                    view=name, definition=sql.Literal(statement)
                )
            )
    except (
        psycopg.errors.WrongObjectType,
        psycopg.errors.InvalidTableDefinition,
    ) as error:
        raise ConfigurationError(
            "TABLE_DIFFERS",
            saw=f"{view} exists and is not a view of metrics: "
            f"{error.diag.message_primary}.",
            why=f"The metrics of {output.table} need a view of that name.",
            fix="Drop it, or name another view.",
        ) from error


def _view_definition(
    connection: psycopg.Connection[TupleRow], output: WindowColumns, view: str
) -> str:
    """Write the view's definition; the view's comment keeps it for comparison."""
    numbers = [
        aggregate.column.name
        for aggregate in output.aggregates
        if aggregate.column.postgres_type in _NUMBERS
    ]
    if not numbers:
        raise ConfigurationError(
            "METRICS_EMPTY",
            saw=f"No aggregate of {output.table} is a number.",
            why=f"The view {view} has a row for each numeric aggregate.",
            fix="Leave metrics out, or add an aggregate such as count(*).",
        )
    dimensions = [
        part
        for column in output.by
        for part in (sql.Literal(column.name), _kept(column.name))
    ]
    metrics = [
        sql.SQL("({}, {}::numeric)").format(sql.Literal(name), _kept(name))
        for name in numbers
    ]
    composed = _METRICS_VIEW["create"].format(
        view=table_identifier(view),
        table=table_identifier(output.table),
        dimensions=sql.SQL(", ").join(dimensions),
        metrics=sql.SQL(", ").join(metrics),
    )
    return composed.as_string(connection)


def _kept(column: str) -> sql.Composable:
    return sql.Identifier("kept", column)
