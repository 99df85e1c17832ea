"""Where the participants are: connection strings from the environment.

A pipeline file may say where a database is, but it never holds a password. An operator
who needs a password writes the whole connection string into the environment, or keeps
the secret where libpq looks for it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import read_setting

#: A JSON object: name to libpq connection string. May hold secrets.
DATABASES_VARIABLE = "TALLYWEIR_DATABASES"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def parse_databases(
    environment: Mapping[str, str], declared: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the connection string of every database but the home.

    Args:
        environment: Environment of the process. ``TALLYWEIR_DATABASES`` overrides the
            declared connection string of a database.
        declared: Names of the needed databases, mapped to their connection strings;
            an empty string means that the environment must give it.

    Raises:
        ConfigurationError: ``DATABASES_MALFORMED`` or ``DATABASE_UNKNOWN``. No error
            shows any part of a connection string.
    """
    given = _read_variable(read_setting(environment, DATABASES_VARIABLE) or "")
    databases = {**declared, **given}
    unknown = [name for name, conninfo in databases.items() if not conninfo]
    if unknown:
        known = sorted(set(databases) - set(unknown))
        raise _unknown(unknown[0], known)
    for name, conninfo in databases.items():
        _check(name, conninfo)
    return databases


def _read_variable(text: str) -> dict[str, str]:
    """Read the variable; an absent or empty one gives no databases."""
    if not text:
        return {}
    try:
        given = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError:
        # The parser's error holds the text, which may hold a password.
        raise _malformed(
            f"{DATABASES_VARIABLE} is not JSON, or names a database twice."
        ) from None
    if not isinstance(given, dict):
        raise _malformed(f"{DATABASES_VARIABLE} is JSON, but not an object.")
    for name, conninfo in given.items():
        if not isinstance(conninfo, str) or not conninfo:
            raise _malformed(
                f"{DATABASES_VARIABLE} gives {name!r} an empty text, or a value that "
                "is not text."
            )
    return given


def _without_repeats(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    entries: dict[str, object] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError
        entries[name] = value
    return entries


def _check(name: str, conninfo: str) -> None:
    if name == HOME or not _NAME.fullmatch(name):
        raise _malformed(
            f"{DATABASES_VARIABLE} has the name {name!r}; a name is a lower-case "
            "letter, then lower-case letters, digits or _, at most 31 in all, and "
            f"not {HOME!r}, which TALLYWEIR_HOME_DSN configures."
        )
    try:
        conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        # libpq's error repeats the part that it could not read, maybe a password.
        raise _malformed(
            f"The connection string of {name!r} is not one that libpq reads."
        ) from None


def _malformed(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "DATABASES_MALFORMED",
        saw=saw,
        why="The process does not know where the pipeline's databases are.",
        fix=f"Set {DATABASES_VARIABLE} to a JSON object such as "
        '{"billing": "host=... dbname=... user=..."}.',
    )


def _unknown(name: str, known: list[str]) -> ConfigurationError:
    nearest = difflib.get_close_matches(name, known, n=1)
    return ConfigurationError(
        "DATABASE_UNKNOWN",
        saw=f"The pipeline names the database {name!r}; known are "
        f"{', '.join([HOME, *known])}.",
        why="No setting says where that database is.",
        fix=f"Write {nearest[0]}."
        if nearest
        else f"Add {name!r} to {DATABASES_VARIABLE}, or to databases in the pipeline "
        "file.",
    )
