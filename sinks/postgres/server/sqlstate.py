"""Which kind of error an SQLSTATE is: by one table, not by the words of messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FatalError,
    RetryableError,
    TallyweirError,
)

#: Classes and states that pass by themselves, or once the server is well again.
_RETRYABLE = (
    "08",  # connection exceptions
    "40",  # serialization failure, deadlock
    "53",  # out of memory, disk or connections
    "55P03",  # lock not available
    "57",  # shutting down, starting up, cancelled
    "58",  # I/O errors of the server
    "25006",  # read-only: a failover is under way
    "25P03",  # idle in transaction for too long: the driver was paused
)

#: States that the operator must act on, with the instruction.
_CONFIGURATION = {
    "28": ("POSTGRES_LOGIN_REFUSED", "Correct the user or password in the DSN."),
    "3D": ("POSTGRES_DATABASE_MISSING", "Create the database, or correct the DSN."),
    "3F": (
        "POSTGRES_SCHEMA_MISSING",
        (
            "Create it, with the privilege to create tables there, or correct the "
            "table's name."
        ),
    ),
    "42501": ("POSTGRES_PERMISSION", "Grant the privilege to the pipeline's role."),
}

#: Foreign keys of our tables to a pipeline, or to a claim on it. Both rows are kept as
#: long as the pipeline exists, so a violation means that the pipeline is gone.
_OF_PIPELINE = ("_pipeline_fkey", "_pipeline_epoch_fkey")

#: Words of a full server's message while connecting; libpq then gives no SQLSTATE.
_FULL = ("too many clients", "too many connections", "remaining connection slots")

#: Errors that the data of one row causes.
_ROW_REJECTED = (
    "22",  # data exceptions
    "23",  # integrity constraints
    "44",  # check option of a view
    "54000",  # too long for an index, or for a tsvector
    "54001",  # nested too deeply for a type's input
    "P0001",  # raised by a trigger
)


def is_row_rejection(error: psycopg.Error) -> bool:
    """Tell whether the data of a row, not the statement, caused the error."""
    return _matches(error.sqlstate or "", _ROW_REJECTED)


def translate(error: psycopg.Error, *, doing: str) -> TallyweirError:
    """Turn a driver's error into ours; an unlisted state is fatal.

    Args:
        error: What psycopg raised.
        doing: What was attempted, as in "publishing a batch".
    """
    state = error.sqlstate or ""
    message = (error.diag.message_primary or str(error)).strip().replace("\n", " ")
    saw = f"Postgres answered {state or 'nothing'} while {doing}: {message}."
    for prefix, (code, fix) in _CONFIGURATION.items():
        if state.startswith(prefix):
            return ConfigurationError(
                code,
                saw=saw,
                why="This cannot be done until it is corrected.",
                fix=fix,
            )
    if (told := _of_words(state, saw, message)) is not None:
        return told
    if isinstance(error, psycopg.OperationalError) and not state:
        return RetryableError(
            "POSTGRES_UNREACHABLE",
            saw=saw,
            why="The driver publishes no batch while one of its databases is "
            "unreachable.",
            fix="Check that the server runs, and that TALLYWEIR_HOME_DSN, "
            "TALLYWEIR_DATABASES or the pipeline's databases name it.",
        )
    if isinstance(error, psycopg.errors.ForeignKeyViolation) and _is_gone(error):
        return RetryableError(
            "PIPELINE_GONE",
            saw=f"A pipeline was discarded while {doing}.",
            why="The rows to be written belong to a pipeline that no longer exists.",
            fix="Nothing to do: the pipeline no longer appears.",
        )
    if _matches(state, _RETRYABLE):
        return RetryableError(
            "POSTGRES_UNAVAILABLE",
            saw=saw,
            why="The server cannot serve the request for now.",
            fix="Wait for the server, or check its log.",
        )
    return FatalError(
        "POSTGRES_REFUSED",
        saw=saw,
        why="The statement should not fail; nothing was published.",
        fix="Check the server's log, and report this if the log names no cause.",
    )


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise our error instead of psycopg's."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, doing=doing) from error
    except UnicodeEncodeError as error:
        raise _unstorable(f"{error.object!r} was given while {doing}.") from error


def _unstorable(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "TEXT_UNSTORABLE",
        saw=saw,
        why="Postgres cannot store NUL, or text that is not Unicode.",
        fix="Remove such characters from the name or the reason.",
    )


def _is_gone(error: psycopg.Error) -> bool:
    name = error.diag.constraint_name or ""
    return error.diag.schema_name == "tallyweir" and name.endswith(_OF_PIPELINE)


def _matches(state: str, prefixes: tuple[str, ...]) -> bool:
    return any(state.startswith(prefix) for prefix in prefixes)


def _of_words(state: str, saw: str, message: str) -> TallyweirError | None:
    """Find why no session was opened, or no statement sent.

    libpq and psycopg report that without an SQLSTATE. Reading the words here only
    chooses between waiting and asking for help. With a server in another language the
    call is retried, which is safe.
    """
    if state == "53300" or (not state and any(words in message for words in _FULL)):
        return RetryableError(
            "POSTGRES_CONNECTIONS",
            saw=saw,
            why="The server, or a limit on the role or the database, allows no more "
            "sessions.",
            fix="End idle sessions (pg_stat_activity), or raise max_connections or "
            "the CONNECTION LIMIT of the role or database.",
        )
    if state:
        return None
    if "cannot contain NUL" in message:
        return _unstorable(saw)
    if any(
        words in message
        for words in (
            "password authentication failed",
            "no password supplied",
            'role "',
            'database "',
        )
    ):
        return ConfigurationError(
            "POSTGRES_LOGIN_REFUSED",
            saw=saw,
            why="The pipeline needs each of its databases.",
            fix="Correct host, user, password and database where they are set: in "
            "TALLYWEIR_HOME_DSN, TALLYWEIR_DATABASES or the pipeline's databases.",
        )
    if any(
        words in message
        for words in (
            "invalid value for parameter",
            "unrecognized configuration parameter",
            "permission denied to set parameter",
        )
    ):
        return ConfigurationError(
            "POSTGRES_SETTING",
            saw=saw,
            why="The server refuses sessions with this setting.",
            fix="Correct it where it is set: in the connection string's options, a "
            "service file, PGOPTIONS, PGTZ, PGDATESTYLE or PGGEQO.",
        )
    return None
