"""Which servers the environment names."""

from __future__ import annotations

import pytest

from tallyweir.services.process.endpoints import (
    Endpoints,
    given_home_dsn,
    given_kafka_bootstrap,
    shown_dsn,
)


@pytest.mark.parametrize(
    ("environ", "dsn"),
    [
        ({}, None),
        ({"TALLYWEIR_HOME_DSN": "host=a"}, "host=a"),
        ({"TALLYWEIR_HOME_DSN": "host=a", "PGHOST": "b"}, "host=a"),
        ({"TALLYWEIR_HOME_DSN": ""}, ""),
        ({"PGHOST": "b"}, ""),
        ({"PGSERVICE": "home"}, ""),
        ({"PGHOST": ""}, None),
        ({"PGUSER": "me", "PGPASSWORD": "x"}, None),
    ],
)
def test_the_home_dsn_comes_before_libpqs_variables_before_the_embedded_server(
    environ: dict[str, str], dsn: str | None
) -> None:
    """An outside server that is named in any usual way is never shadowed."""
    assert dsn == given_home_dsn(environ)


@pytest.mark.parametrize(
    ("environ", "bootstrap"),
    [
        ({}, None),
        ({"TALLYWEIR_KAFKA_BOOTSTRAP": ""}, None),
        ({"TALLYWEIR_KAFKA_BOOTSTRAP": "a:1,b:2"}, "a:1,b:2"),
    ],
)
def test_a_named_broker_replaces_the_embedded_one(
    environ: dict[str, str], bootstrap: str | None
) -> None:
    """An empty variable names nothing: Kafka has no default server."""
    assert bootstrap == given_kafka_bootstrap(environ)


@pytest.mark.parametrize(
    "dsn", ["postgresql://me:s3cret@h:5/d", "host=h password=s3cret user=me"]
)
def test_a_shown_dsn_hides_the_password(dsn: str) -> None:
    """Neither messages nor a repr in a stack trace give a password away."""
    assert "s3cret" not in shown_dsn(dsn)
    assert "host=h" in shown_dsn(dsn)
    assert "s3cret" not in repr(Endpoints(kafka_bootstrap="k:1", home_dsn=dsn))


def test_a_dsn_that_cannot_be_read_is_not_shown() -> None:
    """What does not parse may still hold a password."""
    assert "s3cret" not in shown_dsn("password = s3cret host")
