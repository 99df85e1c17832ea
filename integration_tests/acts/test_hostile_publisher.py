"""A publisher's tables run none of its code with the rights of who acts, or looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from integration_tests.harness.fresh_databases import copied_database
from integration_tests.harness.postgres_driver import PIPELINE, TP
from integration_tests.harness.relayed_home import wait_for
from integration_tests.harness.role_world import OWNER, RoleWorld, role_world
from integration_tests.harness.steered_pipeline import (
    LAYOUTS,
    broker_of,
    fingerprint_of,
)
from integration_tests.harness.steered_world import FORK, SteeredWorld
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import explain, verify
from tallyweir.sinks.postgres.schema.roles import MONITOR, PUBLISHER
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.sinks.protocol.errors import ConfigurationError

Connection = psycopg.Connection[TupleRow]

LOG = [1, 2, 3, 0, 5, 6, 7, 8]
SNAPSHOT = "amid"

#: A sequence keeps what it has counted when a transaction is taken back.
WEAPONS = """
CREATE SEQUENCE public.theft;
GRANT USAGE ON SEQUENCE public.theft TO PUBLIC;
CREATE FUNCTION public.steal() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF session_user NOT LIKE 'tallyweir_publisher%' THEN
        PERFORM nextval('public.theft');
    END IF;
    RETURN true;
END $$;
CREATE FUNCTION public.steal_calmly(anyelement) RETURNS boolean
LANGUAGE sql IMMUTABLE AS 'SELECT public.steal()';
CREATE FUNCTION public.steal_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.steal();
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE DOMAIN public.loot AS text CHECK (public.steal());
CREATE TYPE public.fence AS ENUM ('a');
"""

_TRIGGER = (
    "CREATE TRIGGER evil {when} DELETE OR INSERT ON {table} FOR EACH {each} "
    "EXECUTE FUNCTION public.steal_now()"
)

#: What the publisher does to a table, and what the error names.
WRITTEN = {
    "trigger evil": _TRIGGER.format(when="BEFORE", each="ROW", table="{table}"),
    "trigger evil ": _TRIGGER.format(when="AFTER", each="STATEMENT", table="{table}"),
    "trigger late": "CREATE CONSTRAINT TRIGGER late AFTER DELETE OR INSERT ON {table} "
    "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.steal_now()",
    "foreign key": "ALTER TABLE {table} ADD COLUMN evil integer UNIQUE; "
    "CREATE TABLE public.meaning "
    "(n integer REFERENCES {table} (evil) ON DELETE CASCADE)",
}
READ = {
    "rule evil": "CREATE RULE evil AS ON DELETE TO {table} "
    "DO ALSO SELECT public.steal()",
    "row-level security": "CREATE POLICY evil ON {table} USING (public.steal()); "
    "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
    "constraint evil": "ALTER TABLE {table} ADD CONSTRAINT evil CHECK (public.steal())",
    # Not of its own, and not as calm as it must be: others run what they are told.
    "random": "ALTER TABLE {table} ADD CHECK (random() >= 0)",
    "default or formula": "ALTER TABLE {table} ADD evil boolean; "
    "ALTER TABLE {table} ALTER evil SET DEFAULT public.steal()",
    "default or formula ": "ALTER TABLE {table} ADD evil boolean "
    "GENERATED ALWAYS AS (public.steal_calmly(1)) STORED",
    "index": "CREATE INDEX evil ON {table} (public.steal_calmly(1))",
    "index ": "CREATE INDEX evil ON {table} ((1)) WHERE public.steal_calmly(1)",
    "statistics": "CREATE STATISTICS evil ON (public.steal_calmly(1)) FROM {table}",
    "loot": "ALTER TABLE {table} ADD evil public.loot",
    "fence": "ALTER TABLE {table} ADD evil public.fence",
    "loot ": "ALTER TABLE {table} ADD CHECK ('x'::public.loot IS NOT NULL)",
    "a view": "ALTER TABLE {table} RENAME TO real; "
    "CREATE VIEW {table} AS SELECT * FROM {schema}.real WHERE public.steal()",
    "row-level security ": "CREATE TABLE public.part () INHERITS ({table}); "
    "CREATE POLICY p ON public.part USING (public.steal()); "
    "ALTER TABLE public.part ENABLE ROW LEVEL SECURITY",
}


@pytest.fixture(scope="module")
def roles(
    server_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoleWorld]:
    """A pipeline of the publisher's, with a snapshot and a fork by the owner."""
    with role_world(server_dsn) as made:
        world = SteeredWorld(
            dsn=made.dsn(PUBLISHER),
            directory=tmp_path_factory.mktemp("steered"),
            log=list(LOG),
        )
        world.first.claim(0)
        _publish(world)
        with connect(made.dsn(OWNER), application_name="test") as owner:
            steering.take_snapshot(owner, PIPELINE, SNAPSHOT, reason="t")
        _publish(world)
        with connect(made.dsn(OWNER), application_name="test") as owner:
            steering.fork(owner, _request("fork"), FORK)
        world.close()
        with connect(made.dsn(PUBLISHER), application_name="test") as publisher:
            publisher.execute(WEAPONS)
        yield made


def _publish(world: SteeredWorld) -> None:
    world.first.stage(0, [0] * 4)
    world.first.publish(0)


@pytest.fixture
def home(roles: RoleWorld) -> Iterator[Callable[[str], str]]:
    """A copy of that home; gives the connection string of a role."""
    with copied_database(roles.server_dsn, roles.dsn(OWNER)) as dsn:
        name = str(conninfo_to_dict(dsn)["dbname"])
        with psycopg.connect(roles.server_dsn, autocommit=True) as admin:
            admin.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                    sql.Identifier(name), sql.Identifier(roles.logins[OWNER])
                )
            )
        yield lambda role: make_conninfo(roles.dsn(role), dbname=name)


def _request(kind: str, pipeline: str = PIPELINE) -> steering.ActRequest:
    return steering.ActRequest(
        pipeline=pipeline, kind=kind, reason="a test", dry_run=kind != "fork"
    )


def _fingerprints(_key: bytes, event_id: str) -> tuple[bytes, ...]:
    words = fingerprint_of(int(event_id))
    return (b"".join(word.to_bytes(8, "big") for word in words),)


def _erase(
    owner: Connection,
    *,
    ids: tuple[str, ...] = (),
    where: tuple[str, str] | None = None,
) -> object:
    request = steering.ErasureRequest(act=_request("erase"), ids=ids, where=where)
    return steering.erase(owner, request, _fingerprints)


Act = Callable[[Connection], object]

ACTS: dict[str, Act] = {
    "erase": lambda c: _erase(c, ids=("5",)),
    "erase where": lambda c: _erase(c, where=("numbers", "number = '5'")),
    "restore": lambda c: steering.restore(
        c, PIPELINE, SNAPSHOT, broker_of(LOG), reason="t", dry_run=True
    ),
    "snapshot": lambda c: steering.take_snapshot(
        c, PIPELINE, "another", reason="t", dry_run=True
    ),
    "fork": lambda c: steering.fork(
        c, replace(_request("fork"), dry_run=True), "numbers-3"
    ),
    "switch": lambda c: steering.switch(c, _request("switch"), FORK),
    "update": lambda c: steering.update(
        c,
        steering.ChangeRequest(pipeline=PIPELINE, reason="t", dry_run=True),
        describe_layout(LAYOUTS[1]),
    ),
    "rollback": lambda c: steering.rollback(
        c, steering.ChangeRequest(pipeline=PIPELINE, reason="t", dry_run=True), 1
    ),
    "reset": lambda c: steering.reset_offsets(
        c, PIPELINE, {TP: 4}, broker_of(LOG), reason="t", dry_run=True
    ),
    "accept loss": lambda c: steering.accept_loss(
        c, _request("accept-loss"), "numbers"
    ),
    "accept topic": lambda c: steering.accept_topics(
        c,
        PIPELINE,
        {at: replace(one, topic_id="new") for at, one in broker_of(LOG).items()},
        reason="t",
        dry_run=True,
    ),
}
#: What acts answer that have nothing to do; the others are done.
ANSWERS = {"rollback": "VERSION_IN_FORCE", "accept loss": "NO_LOSS"}
#: On the fork's tables.
FORK_ACTS: dict[str, Act] = {
    "switch": ACTS["switch"],
    "discard": lambda c: steering.discard(c, _request("discard", FORK)),
}
#: An erasure waits for snapshots to go.
ERASURES = {name: act for name, act in ACTS.items() if name.startswith("erase")}
BESIDE_SNAPSHOTS = {name: act for name, act in ACTS.items() if name not in ERASURES}
READINGS: dict[str, Act] = {
    "verify": lambda c: verify(c, PIPELINE),
    "why": lambda c: explain(c, PIPELINE, "5", _fingerprints),
    "diff": lambda c: steering.diff(c, PIPELINE, FORK),
}


def _attack(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn) as publisher:
        for statement in statements:
            publisher.execute(statement)


def _drop_snapshot(dsn: str) -> None:
    with connect(dsn, application_name="test") as owner:
        steering.drop_snapshot(owner, PIPELINE, SNAPSHOT)


def _is_stolen(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT is_called FROM public.theft").fetchone()
    assert row is not None
    return bool(row[0])


def _refusals(dsn: str, acts: dict[str, Act]) -> dict[str, str]:
    """Return what each act is refused with."""
    found = {}
    for name, act in acts.items():
        with connect(dsn, application_name="test") as connection:
            try:
                act(connection)
                found[name] = "done"
            except ConfigurationError as error:
                found[name] = f"{error.code}: {error.saw}"
    return found


def _assert_answered(refusals: dict[str, str]) -> None:
    for act, answer in refusals.items():
        assert answer.startswith(ANSWERS.get(act, "done")), (act, answer)


def _assert_refused(refusals: dict[str, str], named: str) -> None:
    for act, refusal in refusals.items():
        assert refusal.startswith("FOREIGN_CODE: "), (act, refusal)
        assert named.strip() in refusal, (act, refusal)


@pytest.mark.parametrize(
    ("named", "table"),
    [
        *((named, "public.numbers") for named in (*WRITTEN, *READ)),
        *product(("trigger evil", "a view"), ("public.by_window", "state")),
    ],
)
def test_no_act_runs_what_a_publisher_has_put_into_its_tables(
    home: Callable[[str], str], named: str, table: str
) -> None:
    """Whatever it is, and wherever, the act is refused by name; nothing of it ran."""
    if table == "state":
        with psycopg.connect(home(OWNER)) as owner:
            row = owner.execute(
                "SELECT oid::regclass::text FROM pg_class "
                "WHERE relname LIKE 'window_state_1_%' AND relkind = 'r'"
            ).fetchone()
        assert row is not None
        table = row[0]
    schema = table.split(".")[0]
    attack = {**WRITTEN, **READ}[named].format(table=table, schema=schema)
    _attack(home(PUBLISHER), attack)
    _assert_refused(_refusals(home(OWNER), ACTS), named)
    if named in READ and table != "state":
        _attack(home(PUBLISHER), f"GRANT SELECT ON {table} TO tallyweir_monitor")
        _assert_refused(_refusals(home(MONITOR), READINGS), named)
    assert not _is_stolen(home(OWNER))


@pytest.mark.parametrize("named", ["trigger late", "a view", "foreign key", "index"])
def test_no_act_runs_what_a_publisher_has_put_into_a_fork(
    home: Callable[[str], str], named: str
) -> None:
    """The tables of a fork are the publisher's as well."""
    table = "public.numbers__numbers_2"
    attack = {**WRITTEN, **READ}[named].format(table=table, schema="public")
    _attack(home(PUBLISHER), attack)
    _assert_refused(_refusals(home(OWNER), FORK_ACTS), named)
    assert not _is_stolen(home(OWNER))


@pytest.mark.parametrize("act", [*ACTS, "verify"])
def test_a_table_that_appears_while_an_act_waits_is_looked_at_before_it_is_used(
    home: Callable[[str], str], act: str
) -> None:
    """Whoever owns tables may take one away, and keep an act waiting at the next."""
    table = "by_window" if act == "discard" else "numbers"
    _attack(
        home(PUBLISHER),
        f"ALTER TABLE public.{table} RENAME TO real",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO tallyweir_monitor",
    )
    role, do = (OWNER, ACTS[act]) if act in ACTS else (MONITOR, READINGS[act])
    with (
        psycopg.connect(home(PUBLISHER)) as publisher,
        ThreadPoolExecutor(1) as threads,
    ):
        publisher.execute("LOCK TABLE public.by_window")
        answer = threads.submit(_refusals, home(role), {act: do})
        wait_for(lambda: answer.done() or _waits(home(OWNER)), "the act to wait")
        publisher.execute(
            f"CREATE VIEW public.{table} AS SELECT * FROM real WHERE public.steal()"
        )
        publisher.execute(
            f"GRANT SELECT ON public.{table} TO PUBLIC",
        )
        publisher.commit()
        answer.result()
    assert not _is_stolen(home(OWNER))


def _waits(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted "
            "AND relation = 'public.by_window'::regclass"
        ).fetchone()
    return row != (0,)


def test_tables_that_only_a_version_names_run_nothing_either(
    home: Callable[[str], str],
) -> None:
    """A publisher writes down the layouts of its versions itself."""
    _attack(
        home(PUBLISHER),
        "CREATE VIEW public.trap AS SELECT * FROM numbers WHERE public.steal()",
        "UPDATE tallyweir.pipeline_version SET layout = replace(layout::text, "
        "'\"numbers\"', '\"trap\"')::jsonb WHERE pipeline = 'numbers'",
    )
    acts = {name: ACTS[name] for name in ("update", "rollback")}
    plans: dict[str, Act] = {
        "plan": lambda c: steering.plan_update(c, PIPELINE, describe_layout(LAYOUTS[1]))
    }
    _refusals(home(OWNER), {**acts, **plans})
    assert not _is_stolen(home(OWNER))


def test_shadows_that_a_definition_leaves_out_run_nothing_either(
    home: Callable[[str], str],
) -> None:
    """A discard takes what the ledger says is the fork's, whatever its file says."""
    _attack(
        home(PUBLISHER),
        "ALTER TABLE numbers__numbers_2 RENAME TO real",
        "CREATE VIEW numbers__numbers_2 AS SELECT * FROM real WHERE public.steal()",
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, '{outputs}', "
        f"'[]') WHERE pipeline = '{FORK}'",
    )
    refusals = _refusals(home(OWNER), {"discard": FORK_ACTS["discard"]})
    _assert_refused(refusals, "a view")
    assert not _is_stolen(home(OWNER))


def test_names_without_a_schema_are_the_servers_own(
    home: Callable[[str], str],
) -> None:
    """Also where a function or operator of public would fit better."""
    _attack(
        home(PUBLISHER),
        "CREATE FUNCTION public.same(name, name) RETURNS boolean LANGUAGE sql "
        "AS 'SELECT public.steal()'",
        "CREATE OPERATOR public.~ (LEFTARG = name, RIGHTARG = name, "
        "FUNCTION = public.same)",
    )
    for shadow in ("numbers__numbers_2", "by_window__numbers_2"):
        _attack(
            home(PUBLISHER), f"GRANT SELECT ON public.{shadow} TO tallyweir_monitor"
        )
    _assert_answered(_refusals(home(MONITOR), READINGS))
    _assert_answered(_refusals(home(OWNER), {**BESIDE_SNAPSHOTS, **FORK_ACTS}))
    _drop_snapshot(home(OWNER))
    _assert_answered(_refusals(home(OWNER), ERASURES))
    assert not _is_stolen(home(OWNER))


def test_no_act_touches_what_the_publisher_could_not(
    home: Callable[[str], str],
) -> None:
    """A publisher says itself which tables its pipeline has."""
    with psycopg.connect(home(OWNER)) as owner:
        owner.execute("CREATE TABLE public.salaries (LIKE public.numbers)")
        owner.execute("GRANT SELECT ON public.salaries TO tallyweir_publisher")
    for other in ("salaries", "tallyweir.dead_letter"):
        _attack(
            home(PUBLISHER),
            "UPDATE tallyweir.pipeline SET definition = replace(definition::text, "
            f'\'"table": "numbers\', \'"table": "{other}\')::jsonb '
            f"WHERE pipeline = '{PIPELINE}'"
            if other == "salaries"
            else "UPDATE tallyweir.pipeline SET definition = "
            f"replace(definition::text, 'salaries', '{other}')::jsonb "
            f"WHERE pipeline = '{PIPELINE}'",
        )
        acts = {name: ACTS[name] for name in ("erase", "fork", "snapshot")}
        _assert_refused(_refusals(home(OWNER), acts), f"{other.split('.')[-1]}")


def test_what_an_owner_has_put_into_its_own_tables_runs(
    home: Callable[[str], str],
) -> None:
    """So do a publisher's plain constraints, defaults and indexes."""
    _attack(
        home(PUBLISHER),
        "ALTER TABLE numbers ADD CHECK (length(number) < 9 AND at > '1999-01-01')",
        "ALTER TABLE numbers ADD added timestamptz DEFAULT now()",
        "ALTER TABLE numbers ADD shout text GENERATED ALWAYS AS (upper(number)) STORED",
        "CREATE INDEX ON numbers (lower(number)) WHERE number <> ''",
    )
    with psycopg.connect(home(OWNER)) as owner:
        owner.execute("ALTER TABLE by_window OWNER TO CURRENT_USER")
        owner.execute("GRANT ALL ON by_window TO tallyweir_publisher")
        owner.execute(
            "CREATE FUNCTION public.noted() RETURNS trigger LANGUAGE plpgsql "
            "AS 'BEGIN RETURN NULL; END'"
        )
        owner.execute(
            "CREATE TRIGGER noted AFTER DELETE ON by_window FOR EACH ROW "
            "EXECUTE FUNCTION public.noted()"
        )
    acts = {name: ACTS[name] for name in ("restore", "snapshot")}
    assert set(_refusals(home(OWNER), acts).values()) == {"done"}
    _drop_snapshot(home(OWNER))
    assert set(_refusals(home(OWNER), ERASURES).values()) == {"done"}
    _attack(
        home(PUBLISHER),
        "CREATE TRIGGER evil BEFORE DELETE ON by_window FOR EACH ROW "
        "EXECUTE FUNCTION public.steal_now()",
    )
    _assert_refused(_refusals(home(OWNER), ERASURES), "trigger evil")
    assert not _is_stolen(home(OWNER))
