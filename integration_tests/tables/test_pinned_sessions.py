"""Whatever role, database and environment set, the same values are stored and read."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from integration_tests.harness.fresh_databases import copied_database, fresh_database
from integration_tests.harness.postgres_driver import (
    SECOND_US,
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError

Choices = dict[str, tuple[str, ...]]

_DRAWS = 20
_DRAWS_LONG = 200
_START = datetime(2026, 3, 1, tzinfo=UTC)

#: Settings that change what a session means, and some that only change its plans.
_SETTINGS: Choices = {
    "client_encoding": ("LATIN1", "SQL_ASCII", "WIN1252", "EUC_JP"),
    "standard_conforming_strings": ("off",),
    "backslash_quote": ("on", "off"),
    "quote_all_identifiers": ("on",),
    "bytea_output": ("escape",),
    "array_nulls": ("off",),
    "xmlbinary": ("hex",),
    "xmloption": ("document",),
    "extra_float_digits": ("-15", "0", "3"),
    "lc_numeric": ("POSIX",),
    "lc_monetary": ("POSIX",),
    "lc_time": ("POSIX",),
    "datestyle": ("German", "SQL, DMY", "Postgres, YMD"),
    "intervalstyle": ("iso_8601", "sql_standard", "postgres_verbose"),
    "timezone": ("Asia/Kathmandu", "America/St_Johns"),
    "timezone_abbreviations": ("India", "Australia"),
    "transform_null_equals": ("on",),
    "default_text_search_config": ("pg_catalog.german",),
    "gin_fuzzy_search_limit": ("1",),
    "search_path": ("tallyweir", '"$user"', "pg_catalog", "elsewhere, public"),
    "row_security": ("off",),
    "session_replication_role": ("replica", "local"),
    "restrict_nonsystem_relation_kind": ("view",),
    "createrole_self_grant": ("set",),
    "default_transaction_isolation": ("serializable", "repeatable read"),
    "default_transaction_deferrable": ("on",),
    "lock_timeout": ("1",),
    "statement_timeout": ("1000",),
    "transaction_timeout": ("1000",),
    "idle_in_transaction_session_timeout": ("1000",),
    "idle_session_timeout": ("1000",),
    "synchronous_commit": ("off", "local"),
    "exit_on_error": ("on",),
    "client_min_messages": ("error", "debug5"),
    "check_function_bodies": ("off",),
    "enable_hashjoin": ("off",),
    "enable_mergejoin": ("off",),
    "enable_nestloop": ("off",),
    "enable_hashagg": ("off",),
    "enable_sort": ("off",),
    "enable_seqscan": ("off",),
    "enable_indexscan": ("off",),
    "work_mem": ("64kB",),
    "jit_above_cost": ("0",),
    "debug_parallel_query": ("on", "regress"),
    "max_parallel_workers_per_gather": ("0", "4"),
    "plan_cache_mode": ("force_generic_plan", "force_custom_plan"),
    "default_statistics_target": ("1",),
}

#: What libpq sends by itself, after a connection's own options.
_ENVIRONMENT: Choices = {
    "PGCLIENTENCODING": ("LATIN1", "SQL_ASCII", "nonsense"),
    "PGTZ": ("Asia/Kathmandu", "America/St_Johns"),
    "PGDATESTYLE": ("German", "SQL, DMY"),
    "PGGEQO": ("off",),
}

_EVENTS = append_table(
    "events",
    at="timestamp with time zone",
    word="text",
    exact="numeric",
    near="double precision",
    whole="bigint",
    bytes="bytea",
    nested="jsonb",
)
_WINDOWS = WindowTable(
    table="by_word",
    staging_table="output_1",
    windows=fixed_windows(10 * SECOND_US),
    by=(Column(name="word", postgres_type="text"),),
    aggregates=(
        WindowAggregate(
            column=Column(name="exact_sum", postgres_type="numeric"),
            function=AggregateFunction.SUM,
            number=0,
            partial_type="numeric",
        ),
    ),
    allowed_lateness_us=0,
    late=LatePolicy.DROP,
)

#: A user's table, whose trigger notes what the values look like to the session.
_TABLE = """
CREATE TABLE public.events (
    at timestamptz, word text, exact numeric, near float8, whole bigint, bytes bytea,
    nested jsonb, kafka_topic text, kafka_partition integer, kafka_offset bigint,
    shown text
);
CREATE FUNCTION public.show() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.shown := concat_ws(' ', NEW.at, NEW.at::date, NEW.exact, NEW.near,
        NEW.bytes, NEW.nested, NEW.at - timestamptz '2000-01-01 00:00:00Z',
        to_tsvector(NEW.word), NEW.word = NULL, quote_ident(NEW.word),
        current_setting('search_path'), current_setting('lc_monetary'));
    RETURN NEW;
END $$;
CREATE TRIGGER show BEFORE INSERT ON public.events
FOR EACH ROW EXECUTE FUNCTION public.show();
"""
_READ = (
    "SELECT to_jsonb(e)::text FROM events e ORDER BY kafka_offset",
    "SELECT to_jsonb(w)::text FROM by_word w ORDER BY window_start, word",
    "SELECT sequence, watermark_after, checksum FROM tallyweir.batch ORDER BY 1",
)


@dataclass(frozen=True, kw_only=True)
class _Draw:
    database: dict[str, str]
    role: dict[str, str]
    environment: dict[str, str]


def _draw(chance: random.Random, settings: Choices) -> _Draw:
    def choose(known: Choices, most: int) -> dict[str, str]:
        names = chance.sample(sorted(known), chance.randint(0, most))
        return {name: chance.choice(known[name]) for name in names}

    environment = choose(_ENVIRONMENT, len(_ENVIRONMENT))
    if chance.random() < 0.5:
        environment["PGOPTIONS"] = " ".join(
            f"-c {name}={value.replace(' ', chr(92) + ' ')}"
            for name, value in choose(settings, 6).items()
        )
    return _Draw(
        database=choose(settings, 12),
        role=choose(settings, 12),
        environment=environment,
    )


def _known_settings(dsn: str) -> Choices:
    """Leave out what this version of Postgres does not have."""
    names = {name for (name,) in query(dsn, "SELECT lower(name) FROM pg_settings")}
    return {name: values for name, values in _SETTINGS.items() if name in names}


def _alter(dsn: str, what: str, settings: dict[str, str]) -> None:
    execute(
        dsn,
        f"ALTER {what} RESET ALL",
        *(
            # A list of names is not one name that has commas in it.
            f"ALTER {what} SET {name} = "
            + (value if name == "search_path" else f"'{value}'")
            for name, value in settings.items()
        ),
    )


@contextmanager
def _role(server_dsn: str) -> Iterator[str]:
    """A superuser of the test's own, whose settings are nobody else's."""
    name = f"fuzzed_{uuid.uuid4().hex[:8]}"
    execute(server_dsn, f"CREATE ROLE {name} SUPERUSER LOGIN PASSWORD 'fuzzed'")
    yield name
    execute(server_dsn, f"DROP ROLE {name}")


def _events(first: int) -> list[Row]:
    words = ("café", "日本語", "plain", None, 'o\'clock \\ "quoted"')
    return [
        (
            _START + timedelta(seconds=first + n, microseconds=123_456),
            words[n % len(words)],
            Decimal("12345678901.234567") * (n - 2),
            0.1 + 0.2 * n,
            2**53 + n,
            bytes([0, 255, 92, n]),
            '{"café": [1.10, null]}',
        )
        for n in range(len(words))
    ]


def _publish(dsn: str) -> None:
    """Publish two batches, as a driver that was started under these settings."""
    driver = PostgresDriver(dsn=dsn, layout=layout_of(_EVENTS, _WINDOWS))
    for first in (0, 7):
        events = _events(first)
        plan = driver.plan(len(events))
        partials = [
            (start, start + timedelta(seconds=10), event[1], 1, event[2], 1)
            for event in events
            for start in [event[0] - (event[0] - _START) % timedelta(seconds=10)]
        ]
        staged = {
            "output_0": driver.positioned(plan, events),
            "output_1": partials,
        }
        newest = int(events[-1][0].timestamp() * SECOND_US)
        tally = driver.stage(plan, staged, event_time_max_us=newest)
        assert driver.publish(plan, tally) is PublishOutcome.COMMITTED
    driver.home.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "draws", [_DRAWS, pytest.param(_DRAWS_LONG, marks=pytest.mark.long)]
)
def test_tables_are_the_same_under_any_settings_of_role_database_and_environment(
    server_dsn: str, monkeypatch: pytest.MonkeyPatch, draws: int
) -> None:
    """Each draw sets up to 34 of them; a trigger shows what the session made of it."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")  # noqa: T201 - a failure must tell it
    chance = random.Random(seed)
    settings = _known_settings(server_dsn)
    drawn: set[str] = set()
    with fresh_database(server_dsn, "pinned") as plain, _role(server_dsn) as role:
        migrate(plain)
        execute(plain, _TABLE)
        with copied_database(server_dsn, plain) as undisturbed:
            _publish(undisturbed)
            expected = [query(undisturbed, statement) for statement in _READ]
        assert "café" in str(expected[0])
        for number in range(draws):
            draw = _draw(chance, settings)
            drawn |= {*draw.database, *draw.role}
            with copied_database(server_dsn, plain) as dsn:
                database = conninfo_to_dict(dsn)["dbname"]
                _alter(server_dsn, f"DATABASE {database}", draw.database)
                _alter(server_dsn, f"ROLE {role}", draw.role)
                with monkeypatch.context() as patch:
                    for name, value in draw.environment.items():
                        patch.setenv(name, value)
                    _publish(make_conninfo(dsn, user=role, password="fuzzed"))
                    found = [query(dsn, statement) for statement in _READ]
                assert found == expected, (seed, number, draw)
    assert len(drawn) > 40


def test_a_setting_that_the_role_may_not_take_back_is_refused_by_name(
    server_dsn: str, home_dsn: str
) -> None:
    """A superuser switched the triggers of a database off."""
    with _role(server_dsn) as role:
        execute(server_dsn, f"ALTER ROLE {role} NOSUPERUSER")
        name = conninfo_to_dict(home_dsn)["dbname"]
        execute(
            home_dsn, f"ALTER DATABASE {name} SET session_replication_role = 'replica'"
        )
        dsn = make_conninfo(home_dsn, user=role, password="fuzzed")
        with pytest.raises(
            ConfigurationError, match="session_replication_role"
        ) as error:
            connect(dsn, application_name="test")
        assert error.value.code == "POSTGRES_SETTING"


def test_a_setting_that_the_server_refuses_is_a_configuration_error(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the server would not help."""
    monkeypatch.setenv("PGTZ", "Nowhere/Land")
    with pytest.raises(ConfigurationError, match="TimeZone") as error:
        connect(home_dsn, application_name="test")
    assert error.value.code == "POSTGRES_SETTING"
