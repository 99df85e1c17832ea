"""Which error of ours an error of Postgres becomes."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as pg

from tallyweir.sinks.postgres.server.sqlstate import (
    is_row_rejection,
    translate,
    translated,
)
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FatalError,
    RetryableError,
    TallyweirError,
)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (pg.AdminShutdown(), RetryableError, "POSTGRES_UNAVAILABLE"),
        (pg.DeadlockDetected(), RetryableError, "POSTGRES_UNAVAILABLE"),
        (pg.LockNotAvailable(), RetryableError, "POSTGRES_UNAVAILABLE"),
        (pg.DiskFull(), RetryableError, "POSTGRES_UNAVAILABLE"),
        (pg.ReadOnlySqlTransaction(), RetryableError, "POSTGRES_UNAVAILABLE"),
        (
            pg.IdleInTransactionSessionTimeout(),
            RetryableError,
            "POSTGRES_UNAVAILABLE",
        ),
        (pg.TooManyConnections(), RetryableError, "POSTGRES_CONNECTIONS"),
        (pg.InvalidSchemaName(), ConfigurationError, "POSTGRES_SCHEMA_MISSING"),
        (pg.InvalidPassword(), ConfigurationError, "POSTGRES_LOGIN_REFUSED"),
        (pg.InvalidCatalogName(), ConfigurationError, "POSTGRES_DATABASE_MISSING"),
        (pg.InsufficientPrivilege(), ConfigurationError, "POSTGRES_PERMISSION"),
        (pg.UndefinedTable(), FatalError, "POSTGRES_REFUSED"),
        (pg.CheckViolation(), FatalError, "POSTGRES_REFUSED"),
    ],
    ids=lambda value: value.sqlstate if isinstance(value, psycopg.Error) else None,
)
def test_the_state_decides_what_may_be_done(
    error: psycopg.Error, kind: type[TallyweirError], code: str
) -> None:
    """One table tells waiting from asking for help; a state not in it is fatal."""
    ours = translate(error, doing="testing")
    assert (kind, code) == (type(ours), ours.code)
    assert f"Postgres answered {error.sqlstate} while testing" in ours.saw


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('FATAL:  password authentication failed for user "a"', ConfigurationError),
        ('FATAL:  role "a" does not exist', ConfigurationError),
        ('FATAL:  database "a" does not exist', ConfigurationError),
        ("fe_sendauth: no password supplied", ConfigurationError),
        ("connection refused", RetryableError),
        ("FATAL:  the database system is starting up", RetryableError),
        ("FATAL:  sorry, too many clients already", RetryableError),
        ('FATAL:  too many connections for role "a"', RetryableError),
        ('FATAL:  too many connections for database "a"', RetryableError),
    ],
)
def test_a_refused_connection_without_a_state_is_judged_by_its_words(
    message: str, kind: type[TallyweirError]
) -> None:
    """Libpq gives no state while connecting; what passes by itself is tried again."""
    assert kind is type(
        translate(psycopg.OperationalError(message), doing="connecting")
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (pg.NumericValueOutOfRange(), True),
        (pg.UniqueViolation(), True),
        (pg.WithCheckOptionViolation(), True),
        (pg.RaiseException(), True),
        (pg.ProgramLimitExceeded(), True),
        (pg.StatementTooComplex(), True),
        (pg.UndefinedColumn(), False),
        (pg.LockNotAvailable(), False),
        (psycopg.OperationalError(), False),
    ],
    ids=lambda value: value.sqlstate if isinstance(value, psycopg.Error) else None,
)
def test_only_errors_of_data_make_a_row_refused(
    error: psycopg.Error, *, expected: bool
) -> None:
    """A wrong statement or a sick server is no reason for dead letters."""
    assert expected is is_row_rejection(error)


def test_the_original_error_stays_the_cause() -> None:
    """The server's own words are kept for whoever looks into it."""
    original = pg.UndefinedTable("no such table")
    with pytest.raises(FatalError) as raised, translated("testing"):
        raise original
    assert original is raised.value.__cause__


@pytest.mark.parametrize(
    "message",
    [
        "FATAL:  sorry, too many clients already",
        'FATAL:  too many connections for role "a"',
        "FATAL:  remaining connection slots are reserved for roles with SUPERUSER",
    ],
)
def test_a_server_that_is_full_is_told_from_one_that_is_away(message: str) -> None:
    """Another fix helps."""
    error = translate(psycopg.OperationalError(message), doing="connecting")
    assert "POSTGRES_CONNECTIONS" == error.code
    assert "max_connections" in error.fix


def test_a_text_that_postgres_cannot_hold_is_a_mistake_of_who_gave_it() -> None:
    """A NUL, and what the command line could not decode."""
    zero = psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    assert "TEXT_UNSTORABLE" == translate(zero, doing="pausing").code
    with pytest.raises(ConfigurationError, match="TEXT_UNSTORABLE"), translated("p"):
        "\udcff".encode()
