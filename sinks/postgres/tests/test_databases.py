"""Where databases are, as the environment and the pipeline say together."""

from __future__ import annotations

import json
import traceback

import pytest

from tallyweir.sinks.postgres.server.databases import (
    DATABASES_VARIABLE,
    parse_databases,
)
from tallyweir.sinks.protocol.errors import ConfigurationError


def _parse(text: str, **declared: str) -> dict[str, str]:
    return dict(parse_databases({DATABASES_VARIABLE: text}, declared))


def _refusal(text: str, **declared: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        _parse(text, **declared)
    return caught.value


def test_the_environment_wins_and_adds() -> None:
    """What it says of a database replaces all that the pipeline file says of it."""
    given = json.dumps({"billing": "host=b password=p", "other": "postgresql://h/d"})
    databases = _parse(given, billing="host=x user=u", archive="service=archive")
    assert {
        "billing": "host=b password=p",
        "other": "postgresql://h/d",
        "archive": "service=archive",
    } == databases


@pytest.mark.parametrize("environment", [{}, {DATABASES_VARIABLE: ""}])
def test_without_other_databases_nothing_need_be_set(
    environment: dict[str, str],
) -> None:
    """A pipeline with one database knows nothing of the variable."""
    assert {} == parse_databases(environment, {})


def test_an_unknown_database_is_told_with_the_nearest_and_all_known() -> None:
    """A misspelt name is the first thing to look for."""
    error = _refusal('{"billing": "host=b"}', biling="", archive="host=a")
    assert "DATABASE_UNKNOWN" == error.code
    assert "'biling'" in error.saw
    assert "home, archive, billing" in error.saw
    assert "Write billing." == error.fix


def test_a_database_unlike_any_other_is_to_be_added() -> None:
    """Where nothing is near, the variable is named."""
    error = _refusal("", warehouse="")
    assert "DATABASE_UNKNOWN" == error.code
    assert DATABASES_VARIABLE in error.fix


@pytest.mark.parametrize(
    "text",
    [
        "host=b password=hush-hush",
        '{"billing": "host=b password=hush-hush"',
        '["host=b password=hush-hush"]',
        '{"billing": ["hush-hush"]}',
        '{"billing": null}',
        '{"billing": ""}',
        '{"billing": "hush-hush"}',
        '{"billing": "host=b pasword=hush-hush"}',
        '{"billing": "postgresql://u:hush-hush@[h/d"}',
        '{"billing": "host=b", "billing": "host=c password=hush-hush"}',
        '{"home": "host=b password=hush-hush"}',
        '{"Billing": "host=b password=hush-hush"}',
        '{"billing\\n": "host=b"}',
    ],
)
def test_what_cannot_be_used_is_refused_without_being_shown(text: str) -> None:
    """Neither the error nor what caused it repeats a part that may be a secret."""
    error = _refusal(text)
    assert "DATABASES_MALFORMED" == error.code
    assert "hush-hush" not in "".join(traceback.format_exception(error))


def test_a_declared_place_that_libpq_refuses_is_refused_as_well() -> None:
    """The pipeline's own check only looks for secrets."""
    error = _refusal("", billing="hots=b")
    assert "DATABASES_MALFORMED" == error.code
    assert "'billing'" in error.saw
