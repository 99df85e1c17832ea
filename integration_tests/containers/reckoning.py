"""The one reckoning of every scenario: what Kafka holds against what the tables hold.

Kafka and Postgres are read from outside, by SQL and by a consumer of committed
records; the invariants are those of the chaos suite. Everything since the system was
started is counted, so that a scenario also shows that it left former ones alone.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from psycopg import Connection, sql

from integration_tests.containers.deployment import Deployment, output_of
from integration_tests.containers.patience import await_true
from integration_tests.containers.traffic import Promises
from tallyweir.schemas.codec import EventRecord, decode
from tallyweir.schemas.contract import load_contract, versions_of
from tallyweir.schemas.errors import DecodeError
from tallyweir.services.dev.chaos.invariants import (
    Sent,
    Witnesses,
    check_branches,
    check_ledger,
    check_records,
)
from tallyweir.services.dev.chaos.observed_run import (
    Connections,
    ResultRow,
    observe_pipeline,
)
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.services.dev.chaos.sent_log import Place, SentRecord
from tallyweir.services.dev.chaos.verdict import judge_prepared
from tallyweir.services.dev.chaos.workload import RecordKind
from tallyweir.services.dev.demo.expected_results import (
    ExpectedResults,
    HourOfFlights,
    compare_windows,
)
from tallyweir.sinks.postgres.audit import Check, Verdict
from tallyweir.sinks.postgres.audit.receipt import judge
from tallyweir.sinks.postgres.server.statements import load_statements

Home = Connection[tuple[Any, ...]]

_DEMO_SQL = load_statements("tallyweir.services.dev.demo", "independent_checks.sql")
#: After a long fault there is much to catch up with.
_BACKLOG_MAX_S = 900.0
_NOTHING_SEEN = Witnesses(seen={}, changed=(), told=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoned:
    """A pipeline, as its checks must know it.

    Attributes:
        pipeline: Its name.
        topic: That it reads.
        contract: Of its events; its readable neighbours may have written some.
        tables: That must hold each event once, by database.
        rule: Reason code of its own rule, and the field that must be above zero; two
            empty texts for a pipeline without rules.
        check_windows: Holds its windows against its events, each once, if it has any
            that are worth it.
    """

    pipeline: str
    topic: str
    contract: str
    tables: Mapping[str, str]
    rule: tuple[str, str] = ("", "")
    check_windows: Callable[[Home, Iterable[EventRecord]], Check] | None = None


def _check_hours(home: Home, events: Iterable[EventRecord]) -> Check:
    """I13: the hours of airlines are those of the flights, added up once more."""
    airlines: list[Any] = home.execute("SELECT code, name FROM airlines").fetchall()
    expected = ExpectedResults(dict(airlines))
    for _ in expected.count(events):
        pass
    found = {
        (hour, origin, airline): HourOfFlights(*totals)
        for hour, origin, airline, *totals in home.execute(_DEMO_SQL["windows"])
    }
    return judge(
        "I13_windows_equal_a_recount",
        checked=len(found),
        unit="windows",
        violations=compare_windows(expected.windows, found),
    )


FLIGHTS = Reckoned(
    pipeline="departures",
    topic="flight-departures",
    contract="flight_departure.v1.avsc",
    tables={HOME: "departures", "archive": "departures_archive"},
    rule=("IMPOSSIBLE_DISTANCE", "distance_miles"),
    check_windows=_check_hours,
)

PAGE_VIEWS = Reckoned(
    pipeline="page-views",
    topic="page-views",
    contract="page_view.v1.avsc",
    tables={HOME: "page_views"},
)


class Reckoning:
    """Reckons with one pipeline of a system.

    Args:
        system: Where it runs.
        contracts: The folder of its contracts.
        reckoned: The pipeline.
    """

    def __init__(self, system: Deployment, contracts: Path, reckoned: Reckoned) -> None:
        self._system = system
        self._reckoned = reckoned
        self._contract = load_contract(reckoned.contract, contracts)
        self._writers = versions_of(self._contract)

    def reckon(self, promises: Promises) -> None:
        """Wait until all that Kafka holds is published, then check everything.

        Raises:
            AssertionError: With each invariant that is broken.
        """
        values, ends = self._read_topic()
        await_true(
            lambda: self._has_published(ends),
            "all of Kafka to be published",
            _BACKLOG_MAX_S,
        )
        await_true(lambda: not self._prepared(), "branches to be finished")
        events = self._decode(values)
        sent = {place: self._judge_record(events.get(place)) for place in values}
        good = {
            sent[place].event_id: event
            for place, event in events.items()
            if sent[place].kind is RecordKind.EVENT
        }
        assert good, "nobody has sent anything"
        checks = [_check_promises(promises, sent), *self._check(sent, good.values())]
        broken = [check for check in checks if check.verdict is Verdict.FAILED]
        assert not broken, "\n".join(map(str, broken))
        output_of(self._system.run("tallyweir", "verify", self._reckoned.pipeline))

    def _read_topic(self) -> tuple[dict[Place, bytes], dict[int, int]]:
        printed = self._system.run_python("topic_records", self._reckoned.topic)
        values = {}
        ends = {}
        for line in printed.splitlines():
            what, partition, offset, value = line.split(" ")
            if what == "end":
                ends[int(partition)] = int(offset)
            else:
                values[int(partition), int(offset)] = bytes.fromhex(value)
        return values, ends

    def _decode(self, values: Mapping[Place, bytes]) -> dict[Place, EventRecord]:
        events = {}
        for place, value in values.items():
            try:
                events[place] = decode(value, self._writers)
            except DecodeError:
                continue
        return events

    def _judge_record(self, event: EventRecord | None) -> SentRecord:
        kind = RecordKind.UNDECODABLE
        if event is not None:
            amount = event.get(self._reckoned.rule[1], 1)
            assert isinstance(amount, int)
            kind = RecordKind.EVENT if amount > 0 else RecordKind.RULE_BREAKER
        return SentRecord(
            kind=kind,
            event_id="" if event is None else str(event["event_id"]),
            fingerprint="" if event is None else self._fingerprint(event),
            site="",
            amount=0,
            happened_at_us=0,
        )

    def _check(self, sent: Sent, good: Iterable[EventRecord]) -> Iterable[Check]:
        with ExitStack() as opened:
            connections: Connections = {
                database: opened.enter_context(
                    self._system.connected(_name_in_postgres(database))
                )
                for database in self._reckoned.tables
            }
            rows = {
                database: self._read_rows(database, connection)
                for database, connection in connections.items()
            }
            everything = [row for several in rows.values() for row in several]
            found = observe_pipeline(
                connections, self._reckoned.pipeline, rows=everything
            )
            if self._reckoned.check_windows is not None:
                yield self._reckoned.check_windows(connections[HOME], good)
        rule, _ = self._reckoned.rule
        for several in rows.values():
            of_one = replace(found, rows=tuple(several))
            yield from check_records(sent, of_one, broken_rule=rule)
        at_home = replace(found, rows=tuple(rows[HOME]))
        yield from check_ledger(sent, at_home, _NOTHING_SEEN)
        yield from check_branches(found)
        yield judge_prepared(self._prepared(), databases=len(rows), seconds=0)

    def _read_rows(
        self, database: str, connection: Connection[tuple[Any, ...]]
    ) -> list[ResultRow]:
        fields = [field.name for field in self._contract.fields]
        statement = sql.SQL(
            "SELECT kafka_partition, kafka_offset, event_id, {} FROM {}"
        ).format(
            sql.SQL(", ").join(map(sql.Identifier, fields)),
            sql.Identifier(self._reckoned.tables[database]),
        )
        return [
            ResultRow(
                database=database,
                place=(partition, offset),
                event_id=event_id,
                fingerprint=self._fingerprint(dict(zip(fields, values, strict=True))),
            )
            for partition, offset, event_id, *values in connection.execute(statement)
        ]

    def _fingerprint(self, event: EventRecord) -> str:
        """Hash the fields that the pipeline's own contract has."""
        values = [event.get(field.name) for field in self._contract.fields]
        text = "|".join(
            str(value.timestamp()) if isinstance(value, dt.datetime) else repr(value)
            for value in values
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def _has_published(self, ends: Mapping[int, int]) -> bool:
        rows = self._system.query(
            "SELECT partition, next_offset FROM tallyweir.visible_offset "
            f"WHERE pipeline = '{self._reckoned.pipeline}'"
        )
        published = {int(partition): int(offset) for partition, offset in rows}
        return all(published.get(part, 0) >= end for part, end in ends.items())

    def _prepared(self) -> dict[str, list[str]]:
        gids = [
            gid for (gid,) in self._system.query("SELECT gid FROM pg_prepared_xacts")
        ]
        return {"the server": gids} if gids else {}


def _name_in_postgres(database: str) -> str:
    return "tallyweir" if database == HOME else database


def _check_promises(promises: Promises, sent: Sent) -> Check:
    """Hold what producers were told against what Kafka shows."""
    violations = [
        f"{event_id} at {partition}:{offset} was acknowledged, Kafka has "
        f"{sent.get((partition, offset))}"
        for event_id, partition, offset in promises.acknowledged
        if (partition, offset) not in sent
        or (event_id and sent[partition, offset].event_id != event_id)
    ]
    violations += [
        f"{event_id} at {partition}:{offset} was aborted, and is there"
        for event_id, partition, offset in promises.aborted
        if (partition, offset) in sent
    ]
    return judge(
        "promises_kept",
        checked=len(promises.acknowledged) + len(promises.aborted),
        unit="reports",
        violations=violations,
    )
