"""One pipeline with its topic, its database and its drivers, and checks of them all."""

from __future__ import annotations

import json
import textwrap
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from integration_tests.harness.faulty_driver import FAULT_VARIABLE
from integration_tests.harness.kept_copies import with_kept_copies
from integration_tests.harness.kept_spark import KEPT_SPARK, EndedDriver
from integration_tests.harness.readings import Sent, sent, write_contract
from integration_tests.harness.watched_driver import (
    START_TIMEOUT_S,
    WatchedDriver,
    driver_environment,
)
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.server.connection import connect

_POLL_S = 0.05
_RUN_ENDS = {"run published", "run was done before"}
_FAULTY_DRIVER = "integration_tests.harness.faulty_driver"

#: The beginning of a pipeline file.
SOURCE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
"""

#: A pipeline file whose pieces tests replace.
PIPELINE = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
"""
)


class DriverWorld:
    """What a test of the driver works in.

    Args:
        directory: Of the test's own; holds the pipeline file and all state.
        kafka_bootstrap: Where the broker is.
        home_dsn: A fresh database.
        partitions: Of the topic.
    """

    def __init__(
        self,
        directory: Path,
        kafka_bootstrap: str,
        home_dsn: str,
        *,
        partitions: int = 2,
    ) -> None:
        self.directory = directory
        self.home_dsn = home_dsn
        self.state = directory / "driver-state"
        self.topic = WrittenTopic(kafka_bootstrap, f"readings-{uuid.uuid4().hex[:12]}")
        self.topic.create(partitions)
        self.contract = write_contract(directory / "reading.v1.avsc")
        self.pipeline_file = directory / "readings.yaml"
        self.write_pipeline(PIPELINE)

    def write_pipeline(self, text: str) -> None:
        """Write the pipeline file; ``{topic}`` stands for the topic's name."""
        self.pipeline_file.write_text(
            textwrap.dedent(text).format(topic=self.topic.name)
        )

    @property
    def _staged_by(self) -> Mapping[str, str]:
        """Have the drivers of every other test stage small batches by Spark's tasks.

        The tests' batches are small, and would all be staged in the driver.
        """
        if zlib.crc32(self.directory.name.encode()) % 2:
            return {}
        return {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0"}

    def driver(
        self,
        *,
        once: bool = False,
        batch: int | None = None,
        environment: Mapping[str, str] | None = None,
        state: Path | None = None,
        fault: str | None = None,
    ) -> WatchedDriver:
        """Start a driver.

        Args:
            once: Whether it stops at the end of the topic.
            batch: Offsets that one of its batches reads at most.
            environment: Further settings.
            state: Its state directory, when not the world's.
            fault: What goes wrong in it; see ``faulty_driver``.
        """
        settings = self._settings(batch, environment)
        if fault is not None:
            settings[FAULT_VARIABLE] = fault
        return WatchedDriver(
            self.pipeline_file,
            kafka_bootstrap=self.topic.bootstrap,
            home_dsn=self.home_dsn,
            state_directory=state or self.state,
            once=once,
            environment=settings,
            module="tallyweir.spark_jobs" if fault is None else _FAULTY_DRIVER,
        )

    def _settings(
        self, batch: int | None, environment: Mapping[str, str] | None
    ) -> dict[str, str]:
        settings = {**self._staged_by, **(environment or {})}
        if batch is not None:
            settings["TALLYWEIR_BATCH_OFFSETS_MAX"] = str(batch)
        return settings

    def batch(
        self,
        name: str,
        *inputs: Path | str,
        environment: Mapping[str, str] | None = None,
        fault: str | None = None,
        disposition: str = "append",
    ) -> WatchedDriver:
        """Start a batch run over files, or over ranges of a topic."""
        settings = dict(environment or {})
        if fault is not None:
            settings[FAULT_VARIABLE] = fault
        return WatchedDriver(
            self.pipeline_file,
            kafka_bootstrap=self.topic.bootstrap,
            home_dsn=self.home_dsn,
            state_directory=self.directory / "batch-state",
            arguments=_run_options(name, inputs, disposition),
            environment=settings,
            module="tallyweir.spark_jobs.batch" if fault is None else _FAULTY_DRIVER,
        )

    def run_batch(
        self, name: str, *inputs: Path | str, disposition: str = "append"
    ) -> dict[str, Any]:
        """Do a batch run, which must end well; return what it says it did."""
        run = KEPT_SPARK.run(
            [str(self.pipeline_file), *_run_options(name, inputs, disposition)],
            self._environment(self.directory / "batch-state", {}),
        )
        assert run.code == 0, run.text
        said = [json.loads(line) for line in run.lines if line.startswith("{")]
        (last,) = (line for line in said if line["event"] in _RUN_ENDS)
        return dict(last)

    def run_to_the_end(
        self,
        *,
        batch: int | None = None,
        environment: Mapping[str, str] | None = None,
        code: int = 0,
    ) -> EndedDriver:
        """Run a driver until it has read the topic; it must end with this exit code.

        It shares its Spark with drivers of other tests.
        """
        driver = self.try_to_the_end(batch=batch, environment=environment)
        assert driver.code == code, driver.text
        return driver

    def try_to_the_end(
        self,
        *,
        batch: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> EndedDriver:
        """Run a driver likewise, however it ends."""
        return KEPT_SPARK.run(
            [str(self.pipeline_file), "--once"],
            self._environment(self.state, self._settings(batch, environment)),
        )

    def _environment(self, state: Path, settings: Mapping[str, str]) -> dict[str, str]:
        return driver_environment(
            kafka_bootstrap=self.topic.bootstrap,
            home_dsn=self.home_dsn,
            state_directory=state,
            settings=settings,
        )

    def fetch(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Read from the home database."""
        with psycopg.connect(self.home_dsn) as connection:
            return connection.execute(query.encode(), parameters or None).fetchall()

    def value(self, query: str, *parameters: object) -> Any:  # noqa: ANN401
        """Read the one value that the query gives."""
        ((value,),) = self.fetch(query, *parameters)
        return value

    def execute(self, *statements: str) -> None:
        """Change the home database."""
        with psycopg.connect(self.home_dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def fates(self) -> dict[tuple[int, int], str]:
        """Tell what became of each record, by position, from the tables alone.

        ``committed`` rows are looked for in the table ``readings``.
        """
        queries = (
            "SELECT kafka_partition, kafka_offset, 'committed' FROM public.readings",
            "SELECT kafka_partition, kafka_offset, reason FROM tallyweir.dead_letter",
            (
                "SELECT kafka_partition, kafka_offset, 'duplicate' "
                "FROM tallyweir.duplicate_event"
            ),
            (
                "SELECT kafka_partition, kafka_offset, 'expired' "
                "FROM tallyweir.expired_event"
            ),
            (
                "SELECT kafka_partition, kafka_offset, 'filtered' "
                "FROM tallyweir.filtered_event"
            ),
        )
        rows = [row for query in queries for row in self.fetch(query)]
        positions = Counter((partition, offset) for partition, offset, _ in rows)
        twice = [position for position, count in positions.items() if count > 1]
        assert not twice, f"two fates at {twice}"
        return {(partition, offset): fate for partition, offset, fate in rows}

    def assert_fates(self, records: Mapping[tuple[int, int], Sent]) -> None:
        """Assert that every record, and no other, met its fate; and the ledger.

        Of copies in several partitions, any that could be kept may be.
        """
        found = self.fates()
        records = with_kept_copies(records, found, self.fetch)
        expected = {position: record.fate for position, record in records.items()}
        wrong = {
            position: (expected.get(position), found.get(position))
            for position in sorted({*expected, *found})
            if expected.get(position) != found.get(position)
        }
        assert not wrong, f"(expected, found) by position: {wrong}"
        self.assert_conserved(records)
        self.assert_verified()

    def assert_conserved(self, records: Mapping[tuple[int, int], Sent]) -> None:
        """Assert that the ledger counts each partition's records by their fates."""
        columns = ("committed", "duplicate", "late", "expired", "filtered")
        expected: dict[int, Counter[str]] = {}
        for (partition, _), record in records.items():
            counts = expected.setdefault(partition, Counter())
            counts["read"] += 1
            counts[record.fate if record.fate in columns else "dead"] += 1
        found = {
            row[0]: Counter(dict(zip(("read", "dead", *columns), row[1:], strict=True)))
            for row in self.fetch(
                "SELECT partition, sum(read), sum(dead), sum(committed), "
                "sum(duplicate), sum(late), sum(expired), sum(filtered) "
                "FROM tallyweir.batch_partition GROUP BY partition HAVING sum(read) > 0"
            )
        }
        # Counters compare equal where one lacks what the other has none of.
        assert expected == found

    def assert_verified(self, pipeline: str = "readings") -> None:
        """Assert that the product's own audit finds nothing."""
        # As the command connects: a table may be called like one of the ledger's.
        with connect(self.home_dsn, application_name="test audit") as connection:
            receipt = verify(connection, pipeline)
        assert not receipt.failed, receipt.failed

    def await_value(
        self,
        query: str,
        is_reached: Callable[[Any], bool],
        *,
        timeout_s: float = START_TIMEOUT_S,
    ) -> Any:  # noqa: ANN401
        """Poll the database until a value is reached; fail with the last one.

        A table that is not there yet has no value.
        """
        deadline = time.monotonic() + timeout_s
        with psycopg.connect(self.home_dsn, autocommit=True) as connection:
            while True:
                try:
                    row = connection.execute(query.encode()).fetchone()
                except psycopg.errors.UndefinedTable:
                    row = None
                value = None if row is None else row[0]
                if is_reached(value):
                    return value
                assert time.monotonic() < deadline, f"{query}: still {value!r}"
                time.sleep(_POLL_S)

    def await_read(self, records: int) -> None:
        """Wait until that many records are in the ledger."""
        self.await_value(
            "SELECT sum(read) FROM tallyweir.batch_partition", lambda n: n == records
        )

    def ledger(self) -> list[dict[str, Any]]:
        """Return the ledger's batches in order."""
        with psycopg.connect(self.home_dsn, row_factory=dict_row) as connection:
            return connection.execute(
                "SELECT * FROM tallyweir.batch ORDER BY pipeline, sequence"
            ).fetchall()


def _run_options(
    name: str, inputs: Sequence[Path | str], disposition: str
) -> list[str]:
    return [
        *("--run", name),
        f"--disposition={disposition}",
        *map(_input_option, inputs),
    ]


def _input_option(given: Path | str) -> str:
    return f"--{'input' if isinstance(given, Path) else 'offsets'}={given}"


def numbered(
    world: DriverWorld, first: int, count: int, *, partitions: Sequence[int] = (0, 1)
) -> list[Sent]:
    """Make good readings with IDs of their own, spread over partitions."""
    return [
        sent(
            world.contract,
            event_id=f"n{number}",
            amount=number % 100,
            partition=partitions[number % len(partitions)],
        )
        for number in range(first, first + count)
    ]
