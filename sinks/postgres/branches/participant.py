"""A database that publishes branches of batches: the ``Participant`` port.

Each branch has its own connection and thread, so that all branches and the home's own
share are worked on at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from psycopg.types.json import Json

from tallyweir.sinks.postgres.branches.preflight import check_participant
from tallyweir.sinks.postgres.branches.prepared_branches import PostgresPreparedBranches
from tallyweir.sinks.postgres.ledger.stored_state import read_global_id
from tallyweir.sinks.postgres.outputs.lost_tables import (
    check_not_lost_beside,
    forget_windows,
)
from tallyweir.sinks.postgres.outputs.output import (
    RowRefusedError,
    VotedRows,
    tables_of,
)
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.result_tables import create_result_tables
from tallyweir.sinks.postgres.outputs.table_trouble import explain_failure
from tallyweir.sinks.postgres.publish.publish_moves import (
    OutputMoves,
    publish_values,
)
from tallyweir.sinks.postgres.schema.migrations import migrate_participant
from tallyweir.sinks.postgres.server.connection import DatabaseLink, standbys_waited_for
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.server.naming import (
    HOME,
    TableNames,
    application_name,
    staged_for,
    state_table,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import transactions_of
from tallyweir.sinks.postgres.staging.rejections import explain_refusal
from tallyweir.sinks.postgres.staging.staging_tables import (
    StagingSchemas,
    staging_tables,
)
from tallyweir.sinks.postgres.tables.table_owners import TableOwner
from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, compare_history
from tallyweir.sinks.protocol.ports import BatchTerms, BranchOrder
from tallyweir.sinks.protocol.votes import BatchTally

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_SQL = load_statements("tallyweir.sinks.postgres.branches", "participant.sql")

#: How often the driver shows the home that it lives while it waits for branches.
_MEANWHILE_S = 5.0

_PREPARED = "PREPARE TRANSACTION"


class PostgresParticipant(PostgresPreparedBranches):
    """One driver's view of a database that takes part in its batches.

    Args:
        dsn: Connection string of that database.
        database: Its name in the pipeline; ``home`` for branches that are published in
            parallel in the home database.
        layout: The pipeline's tables.
        claim: The driver's claim.
    """

    def __init__(
        self, dsn: str, database: str, layout: PipelineLayout, claim: EpochClaim
    ) -> None:
        super().__init__(
            dsn,
            database,
            installation=claim.installation,
            pipeline_number=claim.pipeline_number,
        )
        self._layout = layout
        self._claim = claim
        self._branches = layout.branches_in(database)
        # The home makes and tidies the tables that its own branches work with.
        self._is_home = database == HOME
        self._installation = None if self._is_home else claim.installation
        name = application_name(claim.pipeline_number, claim.epoch)
        self._links = {
            branch: DatabaseLink(dsn, application_name=f"{name} {branch}")
            for branch in self._branches
        }
        self._link = DatabaseLink(dsn, application_name=name)
        self._staging = StagingSchemas(
            self._link,
            layout=layout,
            branches=self._branches,
            claim=claim,
            is_home=self._is_home,
        )
        self._threads = ThreadPoolExecutor(len(self._branches) or 1, database)
        self._preparing: dict[GlobalId, Future[None]] = {}
        #: When a branch's windows are next due to be shown, as far as known.
        self._shows_at_us: dict[str, int | None] = {}

    def open(self) -> None:
        """Check that the database can take part, and create the markers' table.

        After that, branches in doubt can be settled.

        Raises:
            ConfigurationError: The login was refused, a privilege is missing, or as
                ``check_participant``.
            RetryableError: The database did not answer.

        Crash:
            Each migration is one transaction; for the check, see ``check_participant``.
        """
        outputs = (
            o for o in self._layout.outputs if set(o.branches) & set(self._branches)
        )
        check_participant(
            self._dsn, self._database, outputs, len(self._branches), self._claim
        )
        migrate_participant(self._dsn)

    def create_tables(self) -> None:
        """Make result tables and staging, after branches in doubt are settled.

        Raises:
            ConfigurationError: A table exists with other columns, or is another
                pipeline's (``TABLE_OWNED``), or is gone (``TABLE_LOST``).
            RetryableError: The database did not answer, or an orphan has a lock.

        Crash:
            One transaction; the next driver does the same for its own epoch.
        """
        if self._is_home:
            return

        def create(connection: psycopg.Connection[TupleRow]) -> None:
            connection.execute(_PUBLISH["begin_settings"])
            outputs = [
                output
                for output in self._layout.outputs
                if set(output.branches) & set(self._branches)
            ]
            owner = TableOwner(
                installation=self._claim.installation, pipeline=self._layout.pipeline
            )
            try:
                had = owner.claim(connection, tables_of(outputs))
                for table in check_not_lost_beside(
                    connection, self._layout, self._claim, had, outputs
                ):
                    forget_windows(connection, self._state(table))
                owner.release(connection, tables_of(outputs))
                create_result_tables(connection, outputs, self._state)
            except psycopg.errors.LockNotAvailable as error:
                doing = f"checking the result tables in {self._database}"
                raise explain_failure(
                    connection, outputs, error, doing=doing
                ) from error
            self._staging.create(connection)

        self._link.run(f"creating tables in {self._database}", create)
        self._staging.drop_superseded()

    def touched(self, tally: BatchTally, terms: BatchTerms) -> Sequence[str]:
        """Name the branches that have rows, or windows to settle or show.

        Raises:
            RetryableError: The database did not answer.
        """
        moves_watermark = terms.watermark_before_us != terms.watermark_after_us
        return [
            branch
            for branch in self._branches
            if any(
                tally.staged.get(staged_for(output.staging_table, branch))
                or (moves_watermark and output.follows_watermark)
                for output in self._layout.outputs_of(branch)
            )
            or self._has_windows_to_show(branch, terms.planned_at_us)
        ]

    def _has_windows_to_show(self, branch: str, planned_at_us: int) -> bool:
        """Tell whether a window has waited as long as its output allows.

        The moment cannot change until the branch takes part again, so the database is
        asked only once.
        """
        if branch not in self._shows_at_us:
            self._shows_at_us[branch] = self._read_shows_at_us(branch)
        shows_at_us = self._shows_at_us[branch]
        return shows_at_us is not None and shows_at_us <= planned_at_us

    def _read_shows_at_us(self, branch: str) -> int | None:
        """Read when the first of a branch's windows is due; None if no window is."""
        waiting = {
            output.table: output.shows_after_us
            for output in self._layout.outputs_of(branch)
            if output.shows_after_us is not None
        }
        if not waiting:
            return None

        def read(connection: psycopg.Connection[TupleRow]) -> list[int]:
            moments = []
            for table, after_us in waiting.items():
                statement = _SQL["waits_since"].format(state=self._state(table))
                ((since,),) = connection.execute(statement)
                if since is not None:
                    moments.append(to_microseconds(since) + after_us)
            return moments

        moments = self._link.run(f"looking for windows in {self._database}", read)
        return min(moments, default=None)

    def newest_markers(self) -> dict[str, GlobalId]:
        """Read the newest marker of each branch that the pipeline has now."""
        found = super().newest_markers()
        return {name: gid for name, gid in found.items() if name in self._branches}

    def begin_prepare(self, order: BranchOrder) -> None:
        """Start to move a branch's rows in its thread.

        Crash:
            The branch is prepared or not; if it is undecided, the next driver or the
            resolver rolls it back.
        """
        # Whether or not it is committed, its waiting windows must be read again.
        self._shows_at_us.pop(order.gid.branch, None)
        own = staging_tables(self._layout, order.gid.branch)
        self._staging.note_published(
            order.terms.sequence,
            {table: order.tally.staged.get(table, 0) for table in own},
            attempts=len(order.tally.attempts),
        )
        self._preparing[order.gid] = self._threads.submit(self._prepare, order)

    def await_prepared(self, gid: GlobalId, *, meanwhile: Callable[[], None]) -> None:
        """Wait until a branch is prepared; see ``Participant`` for the errors."""
        preparing = self._preparing[gid]
        while not wait([preparing], timeout=_MEANWHILE_S).done:
            meanwhile()
        del self._preparing[gid]
        preparing.result()

    def await_quiet(self) -> None:
        """Wait until no branch is being prepared, whether it succeeded or failed."""
        wait(self._preparing.values())
        self._preparing.clear()

    def tidy(self) -> None:
        """Empty staging when it is large; best effort, and safe at any time."""
        try:
            self._staging.tidy()
        except RetryableError:
            return

    def close(self) -> None:
        """Close every connection, after all running work has ended."""
        self._threads.shutdown(wait=True)
        for link in (self._link, *self._links.values()):
            link.close()
        super().close()

    def _state(self, table: str) -> sql.Identifier:
        return state_table(
            self._claim.pipeline_number, table, installation=self._installation
        )

    def _names(self, order: BranchOrder) -> TableNames:
        return TableNames(
            pipeline_number=self._claim.pipeline_number,
            epoch=self._claim.epoch,
            sequence=order.terms.sequence,
            installation=self._installation,
        )

    def _prepare(self, order: BranchOrder) -> None:
        branch = order.gid.branch
        link = self._links[branch]
        outputs = self._layout.outputs_of(branch)
        doing = f"preparing branch {branch}"
        try:
            connection = link.connected()
            self._move_and_prepare(connection, order)
        except RowRefusedError as refusal:
            raise explain_refusal(
                connection,
                outputs,
                self._names(order),
                order.tally,
                refusal=refusal.cause,
                branch=branch,
                doing=doing,
            ) from refusal
        except psycopg.Error as error:
            found = explain_failure(connection, outputs, error, doing=doing)
            link.close()
            raise found from error
        except BaseException:
            link.close()
            raise

    def _move_and_prepare(
        self, connection: psycopg.Connection[TupleRow], order: BranchOrder
    ) -> None:
        gid, terms, tables = order.gid, order.terms, self._names(order)
        values: dict[str, object] = {
            **self._scope,
            **publish_values(gid.claim.epoch, terms),
            "pipeline": self._layout.pipeline,
            "branch": gid.branch,
            "gid": str(gid),
        }
        connection.execute(_PUBLISH["begin_settings"])
        row = connection.execute(_SQL["newest_marker"], values).fetchone()
        # This detects a database that was restored under a running driver.
        compare_history(
            gid.branch,
            decided=terms.decided.get(gid.branch),
            marked=None if row is None else read_global_id(row[0]),
        )
        attempts = order.tally.attempts
        values["transactions"] = transactions_of(connection, tables, attempts)
        moves = OutputMoves(
            VotedRows(
                connection=connection, tables=tables, tally=order.tally, values=values
            )
        )
        rows = moves.run(self._layout.outputs_of(gid.branch), gid.branch)
        marked = {**values, "rows": rows, "digests": Json(moves.digests)}
        connection.execute(_SQL["insert_marker"], marked)
        with standbys_waited_for(connection):
            answer = connection.execute(
                _SQL["prepare"].format(gid=sql.Literal(str(gid)))
            ).statusmessage
        if answer != _PREPARED:
            # In a transaction that has failed, Postgres rolls back instead and
            # reports no error.
            raise FatalError(
                "PREPARE_REFUSED",
                saw=f"Postgres answered {answer!r} to {_PREPARED} of {gid}.",
                why="The branch is not prepared, so its batch may not be decided.",
                fix="Check the server's log, and report this.",
            )
