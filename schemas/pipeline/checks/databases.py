"""Checks the databases of a pipeline, and how outputs are split over them.

A pipeline file says where a database is, but holds no secret: it may be shown to
anyone. So this module only looks for secrets. Whether a connection string works is up
to libpq when the driver starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from tallyweir.schemas.pipeline.checks.names import check_column, check_distinct
from tallyweir.schemas.pipeline.checks.problems import Path, Problem

#: The database of results, offsets and ledger; only the environment says where it is.
HOME = "home"

#: Parallel publish transactions of one output: each holds a connection, and a slot
#: of the server's ``max_prepared_transactions``, while a batch is published.
BRANCHES_MAX = 16

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_URI = re.compile(r"postgres(ql)?://", re.IGNORECASE)
_SECRETS = frozenset(
    {
        "oauth_client_secret",
        "password",
        "scram_client_key",
        "scram_server_key",
        "sslpassword",
    }
)
# Settings as libpq reads them: a value is quoted or ends at a blank; \ escapes.
_SETTING = re.compile(
    r"\s*(?P<key>[^\s=]+)\s*=\s*(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s\\])*)(?=\s|$)",
    re.DOTALL,
)


class InHome:
    """An output only in the home, together with the state or ledger it belongs to."""

    __slots__ = ()

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases of the output: the home."""
        return (HOME,)

    @property
    def shard_by(self) -> tuple[str, ...]:
        """Empty: there is only one database."""
        return ()


def check_databases(names: tuple[str, ...], at: Path) -> Iterator[Problem]:
    """Find problems with the names of an output's databases."""
    for index, name in enumerate(names):
        yield from _check_name(name, (*at, index))
    yield from check_distinct(list(names), "databases", at)


def check_declaration(name: str, conninfo: str, at: Path) -> Iterator[Problem]:
    """Find problems with a pipeline's declaration of a database.

    Problems never show the connection string, because it may hold a secret.
    """
    if name == HOME:
        yield Problem(
            code="PIPELINE_RESERVED_NAME",
            at=at,
            saw=f"A database is called {HOME!r}.",
            why="That name is reserved for the home database, which the driver's "
            "environment configures.",
            fix="Choose another name, or leave the entry out.",
        )
    yield from _check_name(name, at)
    keys = _keys_of(conninfo)
    if keys is None:
        yield Problem(
            code="PIPELINE_VALUE",
            at=at,
            saw=f"The connection string of {name!r} cannot be read.",
            why="It is neither a list of key=value pairs nor a URI.",
            fix="Write host=... dbname=... user=..., or postgresql://user@host/database.",
        )
        return
    for key in sorted(_SECRETS & keys):
        yield Problem(
            code="PIPELINE_SECRET",
            at=at,
            saw=f"The connection string of {name!r} holds a {key}.",
            why="Pipeline files are shared, stored and shown.",
            fix="Remove it here, and change it if others have seen it. Put the whole "
            "string into TALLYWEIR_DATABASES, or the secret into libpq's passfile.",
        )


def check_split(
    databases: tuple[str, ...], shard_by: tuple[str, ...], branches: int = 1
) -> Iterator[Problem]:
    """Find settings that leave open, or decide twice, where a row of an output goes."""
    if not databases:
        yield _wrong(
            "databases",
            "The list of databases is empty.",
            "Name at least one database.",
        )
    if len(databases) > 1 and not shard_by:
        yield Problem(
            code="PIPELINE_MISSING_KEY",
            at=("shard_by",),
            saw="The output has several databases and no shard_by.",
            why="Nothing decides which of them a row goes to.",
            fix="Add shard_by with the columns that decide it.",
        )
    if len(databases) == 1 and shard_by:
        yield _wrong(
            "shard_by",
            "The output has shard_by, but only one database.",
            "Remove it, or write a list of databases.",
        )
    if not 1 <= branches <= BRANCHES_MAX:
        yield _wrong(
            "branches",
            f"branches is {branches}.",
            f"Write a number from 1 to {BRANCHES_MAX}.",
        )
    if len(databases) > 1 and branches != 1:
        yield _wrong(
            "branches",
            "The output has branches and several databases.",
            "Remove branches: each database already has its own publish transaction.",
        )
    for index, column in enumerate(shard_by):
        yield from check_column(column, ("shard_by", index))
    yield from check_distinct(list(shard_by), "columns", ("shard_by",))


def _check_name(name: str, at: Path) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        yield Problem(
            code="PIPELINE_NAME",
            at=at,
            saw=f"A database is called {name!r}.",
            why="The name must start with a lower-case letter, followed by "
            "lower-case letters, digits or _, at most 31 characters in all.",
            fix="Choose a name that fits.",
        )


def _keys_of(conninfo: str) -> set[str] | None:
    """Return the keys that a connection string sets; None if it cannot be read.

    If in doubt, it reports a ``password``: for text with a colon before an ``@``.
    """
    if not _URI.match(conninfo):
        keys = {setting["key"].casefold() for setting in _SETTING.finditer(conninfo)}
        return None if _SETTING.sub("", conninfo).strip() else keys
    try:
        parts = urlsplit(conninfo)
    except ValueError:
        return None
    keys = {key.casefold() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    user, at_sign, _ = conninfo.partition("://")[2].rpartition("@")
    if at_sign and ":" in user:
        keys.add("password")
    return keys


def _wrong(key: str, saw: str, fix: str) -> Problem:
    return Problem(
        code="PIPELINE_VALUE",
        at=(key,),
        saw=saw,
        why="The file must say exactly once where each row of the output goes.",
        fix=fix,
    )
