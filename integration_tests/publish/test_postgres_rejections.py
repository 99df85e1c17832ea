"""Rows that the user's own table refuses: found exactly, and nobody else's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from integration_tests.harness.postgres_driver import (
    TP,
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.protocol.coordinator import Coordinator
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError, FatalError
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    RejectedRow,
    Rejection,
    RowsRejectedError,
    StagedBatch,
)
from tallyweir.sinks.protocol.votes import BatchTally
from tallyweir.sinks.testing.planned_batches import vote_on

_LAYOUT = layout_of(append_table("numbers", number="bigint", label="text"))
_COLUMNS = (
    "kafka_topic text, kafka_partition integer, kafka_offset bigint, label text, "
)
_NUMBERS = [(number, f"label {number}") for number in range(20)]
_TRIGGER_FUNCTION = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF NEW.number IN (3, 17) THEN RAISE 'not this number'; END IF; RETURN NEW; END $$"
)

#: How a table comes to refuse the rows 3 and 17 of ``_NUMBERS``, and the SQLSTATE.
_REFUSALS = {
    "check": (
        [f"CREATE TABLE numbers ({_COLUMNS} number bigint CHECK (number % 14 <> 3))"],
        "23514",
    ),
    "not null": (
        [
            (
                f"CREATE TABLE numbers ({_COLUMNS} number bigint, copy bigint NOT NULL "
                "GENERATED ALWAYS AS (nullif(nullif(number, 3), 17)) STORED)"
            )
        ],
        "23502",
    ),
    "overflow": (
        [
            (
                f"CREATE TABLE numbers ({_COLUMNS} number bigint, copy smallint "
                "GENERATED ALWAYS AS "
                "(CASE WHEN number IN (3, 17) THEN 40000 ELSE 0 END) STORED)"
            )
        ],
        "22003",
    ),
    # Not compressed, or a short one could stand for it in the index.
    "too long for an index": (
        [
            (
                f"CREATE TABLE numbers ({_COLUMNS} number bigint, long text "
                "GENERATED ALWAYS AS (repeat('x', "
                "CASE WHEN number IN (3, 17) THEN 3000 ELSE 1 END)) STORED)"
            ),
            "ALTER TABLE numbers ALTER COLUMN long SET STORAGE EXTERNAL",
            "CREATE INDEX ON numbers (long)",
        ],
        "54000",
    ),
    "trigger": (
        [
            f"CREATE TABLE numbers ({_COLUMNS} number bigint)",
            _TRIGGER_FUNCTION,
            (
                "CREATE TRIGGER refuse BEFORE INSERT ON numbers "
                "FOR EACH ROW EXECUTE FUNCTION refuse()"
            ),
        ],
        "P0001",
    ),
    "trigger that skips": (
        [
            f"CREATE TABLE numbers ({_COLUMNS} number bigint)",
            (
                "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF NEW.number IN (3, 17) THEN RETURN NULL; END IF; RETURN NEW; END $$"
            ),
            (
                "CREATE TRIGGER skip BEFORE INSERT ON numbers "
                "FOR EACH ROW EXECUTE FUNCTION skip()"
            ),
        ],
        "ROW_SKIPPED",
    ),
    "deferred trigger": (
        [
            f"CREATE TABLE numbers ({_COLUMNS} number bigint)",
            _TRIGGER_FUNCTION,
            (
                "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON numbers DEFERRABLE "
                "INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
            ),
        ],
        "P0001",
    ),
    "deferred foreign key": (
        [
            "CREATE TABLE known (number bigint PRIMARY KEY)",
            (
                "INSERT INTO known SELECT n FROM generate_series(0, 19) AS n "
                "WHERE n NOT IN (3, 17)"
            ),
            (
                f"CREATE TABLE numbers ({_COLUMNS} number bigint REFERENCES known "
                "DEFERRABLE INITIALLY DEFERRED)"
            ),
        ],
        "23503",
    ),
}


def _in_public(statement: str) -> str:
    return f"SET search_path = public; {statement}"


def _staged(driver: PostgresDriver) -> tuple[BatchPlan, BatchTally]:
    plan = driver.plan(len(_NUMBERS))
    rows = driver.positioned(plan, _NUMBERS)
    return plan, driver.stage(plan, {"output_0": rows})


def _rejected(
    driver: PostgresDriver, plan: BatchPlan, tally: BatchTally
) -> Sequence[RejectedRow]:
    with pytest.raises(RowsRejectedError) as raised:
        driver.publish(plan, tally)
    return raised.value.rows


@pytest.mark.parametrize("refusal", _REFUSALS)
def test_exactly_the_refused_rows_are_found(home_dsn: str, refusal: str) -> None:
    """Bisection names each bad row with its cause, and leaves nothing behind."""
    statements, state = _REFUSALS[refusal]
    execute(home_dsn, *map(_in_public, statements))
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan, tally = _staged(driver)
    tables = "SELECT oid FROM pg_class ORDER BY 1"
    before = query(home_dsn, tables)

    rejected = _rejected(driver, plan, tally)

    assert [(TP, 3), (TP, 17)] == [
        (row.topic_partition, row.offset) for row in rejected
    ]
    assert all(state in row.detail and "numbers" in row.detail for row in rejected)
    assert [] == query(home_dsn, "SELECT * FROM numbers")
    assert [] == query(home_dsn, "SELECT * FROM tallyweir.batch")
    assert before == query(home_dsn, tables)


def test_of_two_rows_in_conflict_the_later_one_is_refused(home_dsn: str) -> None:
    """The first by offset wins, within a batch and against former ones."""
    execute(
        home_dsn,
        _in_public(f"CREATE TABLE numbers ({_COLUMNS} number bigint UNIQUE)"),
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(100, "former")])
    plan = driver.plan(6)
    values = [(n, "") for n in (1, 2, 1, 100, 2, 3)]
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, values)})
    rejected = _rejected(driver, plan, tally)
    assert [3, 4, 5] == [row.offset for row in rejected]


def test_a_deferred_unique_constraint_is_checked_before_commit(home_dsn: str) -> None:
    """It would fail inside COMMIT otherwise, where no row can be told."""
    execute(
        home_dsn,
        _in_public(
            f"CREATE TABLE numbers ({_COLUMNS} number bigint "
            "UNIQUE DEFERRABLE INITIALLY DEFERRED)"
        ),
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(3)
    values = [(1, ""), (2, ""), (1, "")]
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, values)})
    assert [2] == [row.offset for row in _rejected(driver, plan, tally)]


def test_a_row_may_refer_to_a_later_one_where_the_table_allows_it(
    home_dsn: str,
) -> None:
    """A deferred key within the batch is no reason to refuse the earlier row."""
    execute(
        home_dsn,
        _in_public(
            "CREATE TABLE numbers (kafka_topic text, kafka_partition integer, "
            "kafka_offset bigint, number bigint UNIQUE CHECK (number <> 7), "
            "parent bigint REFERENCES numbers (number) DEFERRABLE INITIALLY DEFERRED)"
        ),
    )
    layout = layout_of(append_table("numbers", number="bigint", parent="bigint"))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    plan = driver.plan(6)
    # 1 refers to 2 and 2 to 3, which come later; 7 is refused, and so is 8 with it.
    values = [(1, 2), (7, None), (2, 3), (8, 7), (3, None), (4, None)]
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, values)})
    assert [1, 3] == sorted(row.offset for row in _rejected(driver, plan, tally))


def test_the_good_rows_are_published_and_the_bad_ones_counted_dead(
    home_dsn: str,
) -> None:
    """The coordinator stages again without the refused rows."""
    execute(home_dsn, *map(_in_public, _REFUSALS["check"][0]))
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    attempts = iter(range(1, 9))

    def stage(plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
        attempt = next(attempts)
        bad = {row.offset for row in rejected if isinstance(row, RejectedRow)}
        rows = driver.positioned(plan, _NUMBERS)
        good = [row for row in rows if row[-1] not in bad]
        driver.stage_rows("output_0", good, attempt=attempt)
        vote = vote_on(
            attempt,
            [(TP, row[-1]) for row in good],
            dead=[(TP, offset) for offset in bad],
        )
        return StagedBatch(
            votes=[replace(vote, staged={"output_0": len(good)})],
            records_read=len(rows),
        )

    result = Coordinator(driver.publisher).run_batch(driver.plan(len(_NUMBERS)), stage)

    assert (PublishOutcome.COMMITTED, 1) == (result.outcome, result.restagings)
    assert [(n,) for n in range(20) if n not in (3, 17)] == query(
        home_dsn, "SELECT number FROM numbers ORDER BY 1"
    )
    assert [(1, 18, 2)] == query(
        home_dsn,
        "SELECT restagings, committed, dead FROM tallyweir.batch "
        "JOIN tallyweir.batch_partition USING (pipeline, sequence)",
    )


def test_a_table_that_refuses_too_much_is_to_blame_itself(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is not poured into the dead letters because of a wrong constraint."""
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.rejections.REJECTED_ROWS_MAX", 2
    )
    execute(
        home_dsn,
        _in_public(
            f"CREATE TABLE numbers ({_COLUMNS} number bigint CHECK (number < 17))"
        ),
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan, tally = _staged(driver)
    with pytest.raises(ConfigurationError) as raised:
        driver.publish(plan, tally)
    assert "TABLE_REFUSES_ROWS" == raised.value.code
    assert "refused more than 2 rows" in raised.value.saw
    # The connection is usable again, and as many as the limit are still found.
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.rejections.REJECTED_ROWS_MAX", 3
    )
    assert 3 == len(_rejected(driver, plan, tally))


def test_a_refusal_that_no_row_is_to_blame_for_is_fatal(home_dsn: str) -> None:
    """Postgres' own words are told when bisection finds nothing."""
    execute(
        home_dsn,
        *map(
            _in_public,
            [
                f"CREATE TABLE numbers ({_COLUMNS} number bigint)",
                (
                    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$ BEGIN IF (SELECT count(*) FROM tallyweir.batch) > 0 THEN "
                    "RAISE 'not while a batch is open'; END IF; RETURN NEW; END $$"
                ),
                (
                    "CREATE TRIGGER refuse BEFORE INSERT ON numbers "
                    "FOR EACH ROW EXECUTE FUNCTION refuse()"
                ),
            ],
        ),
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan, tally = _staged(driver)
    with pytest.raises(FatalError) as raised:
        driver.publish(plan, tally)
    assert "not while a batch is open" in raised.value.saw
