"""The prepared branches in one database, which a driver and the resolver finish."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.stored_state import read_global_id
from tallyweir.sinks.postgres.server.connection import connect, standbys_waited_for
from tallyweir.sinks.postgres.server.naming import branch_prefix
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.in_doubt import GlobalId

_SQL = load_statements("tallyweir.sinks.postgres.branches", "participant.sql")


class PostgresPreparedBranches:
    """The ``PreparedBranches`` port: branches of one pipeline in one database.

    Args:
        dsn: Connection string of that database.
        database: Its name in the pipeline.
        installation: The home database's installation id.
        pipeline_number: The pipeline's number.
    """

    def __init__(
        self, dsn: str, database: str, *, installation: str, pipeline_number: int
    ) -> None:
        self._dsn = dsn
        self._database = database
        self._scope = {
            "installation": installation,
            "pipeline_number": pipeline_number,
        }
        self._prefix = branch_prefix(installation, pipeline_number)
        self._connection: psycopg.Connection[TupleRow] | None = None

    @property
    def database(self) -> str:
        return self._database

    def list_prepared(self) -> Sequence[GlobalId]:
        """List the prepared branches of the pipeline, of any driver.

        Raises:
            RetryableError: The database did not answer.
        """
        with translated(f"listing prepared branches in {self._database}"):
            rows = self._connected().execute(
                _SQL["list_prepared"], {"prefix": self._prefix}
            )
            gids = [GlobalId.parse(row[0]) for row in rows]
        return sorted(gid for gid in gids if gid is not None)

    def commit_prepared(self, gid: GlobalId) -> bool:
        """Commit a branch; False when no branch of this name is prepared.

        Raises:
            ConfigurationError: ``BRANCH_OWNER``: another role prepared it.
            RetryableError: The database did not answer; the branch may or may not be
                committed, and calling again finds out.

        Crash:
            The branch is prepared or committed; calling again finds out.
        """
        return self._finish("commit_prepared", gid)

    def roll_back_prepared(self, gid: GlobalId) -> bool:
        """Roll a branch back; errors and crashes as in ``commit_prepared``."""
        return self._finish("roll_back_prepared", gid)

    def has_marker(self, gid: GlobalId) -> bool:
        """Tell whether a branch was committed.

        Raises:
            RetryableError: The database did not answer.
        """
        with translated(f"reading a marker in {self._database}"):
            connection = self._connected()
            with standbys_waited_for(connection):
                row = connection.execute(_SQL["has_marker"], {"gid": str(gid)})
            return row.fetchone() is not None

    def newest_markers(self) -> dict[str, GlobalId]:
        """Read the newest committed branch of each name.

        Raises:
            RetryableError: The database did not answer.
        """
        with translated(f"reading markers in {self._database}"):
            rows = self._connected().execute(_SQL["newest_markers"], self._scope)
            gids = [read_global_id(row[0]) for row in rows]
        return {gid.branch: gid for gid in gids}

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._disconnect()

    def _disconnect(self) -> None:
        # This is not ``close``, which a participant extends to all its connections.
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _finish(self, statement: str, gid: GlobalId) -> bool:
        doing = f"finishing {gid} in {self._database}"
        # The statement takes no parameter, so the name goes in as a quoted literal.
        composed = _SQL[statement].format(gid=sql.Literal(str(gid)))
        try:
            with translated(doing):
                connection = self._connected()
                with standbys_waited_for(connection):
                    connection.execute(composed)
        except RetryableError:
            self._disconnect()
            raise
        except Exception as error:
            match error.__cause__:
                case psycopg.errors.UndefinedObject():
                    return False
                case psycopg.errors.InsufficientPrivilege():
                    raise owned_by_another(str(gid), self._database) from error
                case psycopg.errors.ObjectNotInPrerequisiteState():
                    raise _busy(gid, self._database) from error
                case _:
                    raise
        return True

    def _connected(self) -> psycopg.Connection[TupleRow]:
        if self._connection is None or self._connection.closed:
            # COMMIT PREPARED may not run inside a transaction.
            self._connection = connect(
                self._dsn, application_name="tallyweir branches", autocommit=True
            )
        return self._connection


def owned_by_another(
    gid: str, database: str, *, owner: str = "another role", role: str = ""
) -> ConfigurationError:
    """Return the error for a branch that this role cannot finish."""
    return ConfigurationError(
        "BRANCH_OWNER",
        saw=f"{gid} in {database} was prepared by {owner}"
        + (f", and we are {role}." if role else "."),
        why="Postgres lets only that role, or a superuser, finish it.",
        fix="Connect with the same role everywhere, or let every login SET ROLE to a "
        "common one: options='-c role=NAME' in the connection string.",
    )


def _busy(gid: GlobalId, database: str) -> RetryableError:
    return RetryableError(
        "BRANCH_BUSY",
        saw=f"{gid} in {database} is being finished by another session.",
        why="Only one session may finish a branch.",
        fix="Nothing to do: the resolver tries again.",
    )
