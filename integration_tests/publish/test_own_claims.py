"""A driver that starts over tells a claim of its own from a successor's."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.ledger.epoch_claims import draw_nonce, make_claim
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.staging.staging_tables import StagingSchemas
from tallyweir.sinks.postgres.steering.act import ActRequest, acting
from tallyweir.sinks.protocol.errors import FencedError, RetryableError
from tallyweir.spark_jobs.driver.claiming import OwnClaims

_LAYOUT = layout_of(append_table("numbers", number="bigint"))
_CLAIMS = "SELECT max(epoch) FROM tallyweir.epoch_claim"


def _home(dsn: str) -> PostgresHome:
    return PostgresHome(dsn, _LAYOUT)


def _fail(*_: object) -> None:
    raise RetryableError("POSTGRES_UNAVAILABLE", saw="A full disk.", why="-", fix="-")


def _start(claims: OwnClaims, dsn: str) -> None:
    """Do what a driver does before it works."""
    with closing(_home(dsn)) as home:
        claims.check_not_superseded(home)
        claims.claim(home)


def test_a_claim_whose_start_failed_after_it_is_not_a_successors(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a lock that an old publish holds, comes after its commit."""
    migrate(home_dsn)
    claims = OwnClaims()
    _start(claims, home_dsn)
    with monkeypatch.context() as patch:
        patch.setattr(StagingSchemas, "create", _fail)
        for _ in range(2):
            with pytest.raises(RetryableError, match="A full disk"):
                _start(claims, home_dsn)
    assert [(3,)] == query(home_dsn, _CLAIMS)
    _start(claims, home_dsn)
    assert [(4,)] == query(home_dsn, _CLAIMS)


def test_a_claim_that_nobody_answered_is_not_a_successors(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke behind the commit."""
    migrate(home_dsn)
    claims = OwnClaims()
    _start(claims, home_dsn)
    commit = psycopg.Connection.commit

    def commit_and_break(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        (newest,) = connection.execute(_CLAIMS).fetchone() or (None,)
        commit(connection)
        if newest == 2:
            raise psycopg.OperationalError("server closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "commit", commit_and_break)
        with pytest.raises(RetryableError):
            _start(claims, home_dsn)
    assert [(2,)] == query(home_dsn, _CLAIMS)
    _start(claims, home_dsn)


@pytest.mark.parametrize("fails", [False, True])
def test_a_successor_is_one_however_the_start_before_it_ended(
    home_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    fails: bool,  # noqa: FBT001
) -> None:
    """Two drivers would fence each other for ever."""
    migrate(home_dsn)
    claims = OwnClaims()
    _start(claims, home_dsn)
    if fails:
        with monkeypatch.context() as patch:
            patch.setattr(StagingSchemas, "create", _fail)
            with pytest.raises(RetryableError):
                _start(claims, home_dsn)
    _start(OwnClaims(), home_dsn)
    with pytest.raises(FencedError):
        _start(claims, home_dsn)


def _limits(connection: psycopg.Connection[tuple[object, ...]]) -> tuple[object, ...]:
    limits = connection.execute(
        "SELECT current_setting('lock_timeout'), "
        "current_setting('idle_in_transaction_session_timeout')"
    ).fetchone()
    assert limits is not None
    return limits


def test_who_claims_waits_for_nobody_without_an_end_and_keeps_nobody_waiting(
    home_dsn: str,
) -> None:
    """Behind an act that has claimed; and as one whose machine goes to sleep."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    seen = []
    with psycopg.connect(home_dsn) as connection:
        make_claim(
            connection,
            PIPELINE,
            nonce=draw_nonce(),
            run=None,
            check=lambda: seen.append(_limits(connection)),
        )
    with psycopg.connect(home_dsn, autocommit=True) as connection:
        request = ActRequest(
            pipeline=PIPELINE, kind="pause", reason="a test", lock_timeout_ms=1_000
        )
        with acting(connection, request):
            seen.append(_limits(connection))
    assert [("30s", "30s"), ("1s", "1min")] == seen
