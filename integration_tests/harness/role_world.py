"""Databases of an owner that is no superuser, and a login for every group role."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.schema.migrations import migrate, migrate_participant
from tallyweir.sinks.postgres.schema.roles import PUBLISHER, ROLES, grant_roles
from tallyweir.sinks.postgres.server.naming import HOME

OWNER = "owner"
#: A login that belongs to no group.
STRANGER = "stranger"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleWorld:
    """A server's databases, and how each role gets into them.

    Attributes:
        databases: Names on the server, by the names in pipelines; home and billing.
        logins: Names of logins, by group role, ``OWNER`` or ``STRANGER``.
    """

    server_dsn: str
    databases: dict[str, str]
    logins: dict[str, str]
    password: str

    def dsn(self, role: str, database: str = HOME) -> str:
        """Return the connection string of a role's login."""
        return make_conninfo(
            self.server_dsn,
            dbname=self.databases[database],
            user=self.logins[role],
            password=self.password,
        )

    def dsns(self, role: str) -> dict[str, str]:
        """Return the same for every database."""
        return {name: self.dsn(role, name) for name in self.databases}


@contextmanager
def role_world(server_dsn: str, *, grant: bool = True) -> Iterator[RoleWorld]:
    """Make the owner, its databases and the logins; drop them all at the end.

    Args:
        server_dsn: For an administrator.
        grant: Whether the owner migrates, grants the roles, and lets every login work
            under its group; else that is left to the test.
    """
    tag = uuid.uuid4().hex[:12]
    world = RoleWorld(
        server_dsn=server_dsn,
        databases={name: f"{name}_{tag}" for name in (HOME, "billing")},
        logins={role: f"{role}_{tag}" for role in (OWNER, STRANGER, *ROLES)},
        password=secrets.token_hex(16),
    )
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        try:
            _make(admin, world)
            if grant:
                _grant(admin, world)
            yield world
        finally:
            _drop(admin, world)


def _make(admin: psycopg.Connection[TupleRow], world: RoleWorld) -> None:
    make_login = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
    for login in world.logins.values():
        admin.execute(
            make_login.format(sql.Identifier(login), sql.Literal(world.password))
        )
    owner = sql.Identifier(world.logins[OWNER])
    admin.execute(sql.SQL("ALTER ROLE {} CREATEROLE").format(owner))
    make_database = sql.SQL("CREATE DATABASE {} OWNER {}")
    for database in world.databases.values():
        admin.execute(make_database.format(sql.Identifier(database), owner))


def _grant(admin: psycopg.Connection[TupleRow], world: RoleWorld) -> None:
    join = sql.SQL("GRANT {} TO {}")
    present = admin.execute(
        "SELECT 1 FROM pg_roles WHERE rolname = %s", [PUBLISHER]
    ).fetchone()
    if present:
        # Roles are of the whole server, and another owner has made them.
        owner = sql.Identifier(world.logins[OWNER])
        admin.execute(join.format(sql.Identifier(PUBLISHER), owner))
    for name, dsn in world.dsns(OWNER).items():
        if name == HOME:
            migrate(dsn)
        else:
            migrate_participant(dsn)
        grant_roles(dsn, name)
    work_under = sql.SQL("ALTER ROLE {} SET role = {}")
    for role in ROLES:
        group, login = sql.Identifier(role), sql.Identifier(world.logins[role])
        admin.execute(join.format(group, login))
        admin.execute(work_under.format(login, group))


def _drop(admin: psycopg.Connection[TupleRow], world: RoleWorld) -> None:
    drop_database = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    for database in world.databases.values():
        admin.execute(drop_database.format(sql.Identifier(database)))
    for login in world.logins.values():
        # What it has granted goes with it, membership in a group included.
        admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(login)))
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))
    for role in ROLES:
        # Another world may still need it.
        with suppress(psycopg.errors.DependentObjectsStillExist):
            admin.execute(
                sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role))
            )
