"""What the monitor answers from a real ledger, and that it gives nothing away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.harness.postgres_driver import query
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres.audit import read_overview
from tallyweir.sinks.postgres.server.naming import application_name

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def client(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario
) -> Iterator[httpx.Client]:
    """Asks a monitor of the scenario's database."""
    assert scenario.sequence == 3
    with running_monitor(home_dsn, kafka_bootstrap) as opened:
        yield opened


def _get(client: httpx.Client, rest: str) -> Any:  # noqa: ANN401 - as it came
    answer = client.get(f"/api/pipelines/{PIPELINE}/{rest}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_who_watches_is_told_of_each_look(client: httpx.Client) -> None:
    """A topic that is not there leaves the lag unknown, and the rest is shown."""
    looks: list[dict[str, Any]] = []
    with client.stream("GET", "/api/looks") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                looks.append(json.loads(line.removeprefix("data: ")))
            if len(looks) == 2:
                break
    assert looks[0]["number"] < looks[1]["number"]
    (shown,) = looks[1]["pipelines"]
    assert (shown["pipeline"], shown["last_sequence"]) == (PIPELINE, 3)
    assert (shown["state"], shown["lag"]) == ("STOPPED", None)


def test_what_flows_along_the_edges_adds_up_to_what_was_read(
    client: httpx.Client,
) -> None:
    """Whatever leaves the line aside is missing from the next edge."""
    graph = _get(client, "graph")
    assert graph["batches"] == 3
    assert graph["missing"] == 0
    edges = {(one["source"], one["target"]): one["records"] for one in graph["edges"]}
    assert edges["topic orders", "decode"] == 21
    assert edges["validate", "dead"] == 2
    assert edges["validate", "expired"] == 1
    assert edges["validate", "filtered"] == 1
    assert edges["validate", "deduplicate"] == 17
    assert edges["deduplicate", "duplicate"] == 2
    assert edges["deduplicate", "stage"] == edges["stage", "publish"] == 15
    assert edges["publish", "table departures"] == 15


def test_a_graph_tells_of_the_newest_batches_only(client: httpx.Client) -> None:
    """The last one has two committed events and a dead letter."""
    graph = _get(client, "graph?newest=1")
    assert (graph["batches"], graph["counts"]["read"]) == (1, 3)
    assert (graph["counts"]["committed"], graph["counts"]["dead"]) == (2, 1)


def test_a_graph_tells_what_each_part_takes(
    client: httpx.Client, scenario: LedgerScenario
) -> None:
    """Before anybody has measured, nothing; then shares of the driver's loop."""
    graph = _get(client, "graph")
    assert graph["parts"] == []
    assert _get(client, "bottleneck?lag=9000") is None
    scenario.write_measures()
    graph = _get(client, "graph")
    parts = {one["step"]: one for one in graph["parts"]}
    assert parts["decode"]["share"] == pytest.approx(0.5)
    assert parts["decode"]["rows_per_s"] == pytest.approx(14)
    (decode,) = (one for one in graph["steps"] if one["name"] == "decode")
    assert decode["figures"]["p95_s"] == pytest.approx(0.7)
    assert graph["hot_keys"][0]["share"] == 0.75
    assert graph["custom"]["counts"] == {"refunds": 6}
    assert {one["name"] for one in graph["state"]} == {"IDs remembered"}
    found = _get(client, "bottleneck?lag=9000")
    assert (found["cause"], found["part"]) == ("step", "decode")


def test_batches_are_listed_newest_first_and_page_by_page(client: httpx.Client) -> None:
    """Each with its ranges and its counts."""
    newest, second = _get(client, "batches?limit=2")
    assert (newest["sequence"], second["sequence"]) == (3, 2)
    assert (newest["epoch"], second["epoch"]) == (2, 1)
    assert newest["ranges"][0] == ["orders", 0, 9, 12]
    (oldest,) = _get(client, "batches?before=2")
    assert (oldest["sequence"], oldest["read"], oldest["duplicate"]) == (1, 9, 1)


def test_dead_letters_are_grouped_and_shown_without_what_they_hold(
    client: httpx.Client,
) -> None:
    """Of a payload only its size is told."""
    (group,) = _get(client, "dead-letters")
    assert (group["reason"], group["letters"]) == ("UNDECODABLE", 2)
    letters = _get(client, "dead-letters/UNDECODABLE")
    assert [one["sequence"] for one in letters] == [3, 1]
    assert not {"payload", "key"} & set(letters[0])


def test_an_event_is_explained(client: httpx.Client) -> None:
    """As the command does it; and what is unknown is told as well."""
    told = _get(client, "why?event_id=0-6")
    assert told["is_known"]
    assert "batch 2" in " ".join(told["told"]), told
    assert not _get(client, "why?event_id=nobody")["is_known"]


def test_a_session_that_the_server_ended_is_not_missed(
    client: httpx.Client, home_dsn: str
) -> None:
    """A connection is kept for the next read, which is asked again where it is gone."""
    path = f"/api/pipelines/{PIPELINE}/batches"
    for _ in range(3):
        before = client.get(path)
        ended = query(
            home_dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() "
            "AND application_name = 'tallyweir monitor'",
        )
        assert ended
        after = client.get(path)
        assert (before.status_code, after.status_code) == (200, 200)
        assert before.json() == after.json()


def test_a_pipeline_that_is_not_there_is_not_found(client: httpx.Client) -> None:
    """The answer names those that are."""
    answer = client.get("/api/pipelines/elsewhere/graph")
    assert answer.status_code == 404
    assert answer.json()["code"] == "PIPELINE_UNKNOWN"
    assert PIPELINE in answer.json()["saw"]


@pytest.mark.parametrize(
    "path", ["/", "/page/monitor.js", "/api/pipelines/departures/graph", "/nowhere"]
)
def test_the_page_loads_nothing_from_elsewhere(client: httpx.Client, path: str) -> None:
    """And whatever is answered may not be framed."""
    policy = client.get(path).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "frame-ancestors 'none'" in policy


def test_who_holds_the_lock_that_a_driver_waits_for_is_named(
    home_dsn: str, scenario: LedgerScenario, connection: Connection
) -> None:
    """With the table, which is what an administrator looks for first."""
    (number,) = connection.execute(
        "SELECT pipeline_number FROM tallyweir.pipeline"
    ).fetchone() or (0,)
    connection.commit()
    name = application_name(number, scenario.epoch)
    with (
        closing(psycopg.connect(home_dsn, application_name="psql")) as holder,
        closing(psycopg.connect(home_dsn, application_name=name)) as driver,
    ):
        (summary,) = read_overview(connection)
        assert summary.driver is not None
        assert summary.driver.is_connected
        assert summary.wait is None
        holder.execute("LOCK TABLE departures")
        # Sent, and not waited for: it ends when the holder does.
        driver.pgconn.send_query(b"SELECT count(*) FROM departures")
        wait = None
        while wait is None:
            (summary,) = read_overview(connection)
            wait = summary.wait
        assert (wait.relation, wait.holder) == ("departures", "psql")
        assert wait.process_id == holder.info.backend_pid
