"""Pipelines that alerts are about, and services that watch them in this process."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from integration_tests.harness.readings import Sent
from integration_tests.harness.relayed_home import RelayedHome
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.services.alerts.channels import make_channels
from tallyweir.services.alerts.rules_file import read_rules
from tallyweir.services.alerts.service import AlertMetrics, AlertService
from tallyweir.sinks.postgres.records.alert_book import read_firing

#: What the channels' secrets are found by.
SECRET = {"HOOK_SECRET": "hush"}


def alerted_home(dsn: str, bootstrap: str) -> RelayedHome:
    """Make a pipeline whose driver is gone, and its empty topic."""
    made = RelayedHome(dsn=dsn, bootstrap=bootstrap)
    source = {
        "topic": made.topic,
        "schema": "reading.v1",
        "event_id": {"field": "event_id"},
        "event_time": "at",
    }
    definition = json.dumps({"source": source, "outputs": []})
    made.execute(
        f"UPDATE tallyweir.pipeline SET definition = '{definition}' "
        f"WHERE pipeline = '{made.pipeline}'"
    )
    return made


def send(home: RelayedHome, records: int) -> None:
    """Give each partition so many records."""
    sent = [
        Sent(partition=partition, key=None, value=b"x")
        for partition in range(home.partitions)
        for _ in range(records)
    ]
    WrittenTopic(home.bootstrap, home.topic).send(sent)


def write_rules(tmp_path: Path, url: str, rules: str, more: str = "") -> Path:
    """Write a rules file with a webhook as the channel ``hook``."""
    path = tmp_path / "rules.yaml"
    path.write_text(
        "every: 1 s\n"
        "channels:\n"
        f"  hook: {{kind: webhook, url: '{url}', secret_from: HOOK_SECRET}}\n"
        f"{more}"
        f"rules:\n{rules}"
    )
    return path


def make_service(home: RelayedHome, rules: Path) -> AlertService:
    """Make a service that the test drives round by round."""
    asked = read_rules(rules)
    return AlertService(
        home.dsn,
        home.bootstrap,
        rules=asked,
        channels=make_channels(asked.channels, SECRET),
        metrics=AlertMetrics(),
    )


def list_firing(dsn: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the rules that fire, each with the channels that are still to be told."""
    with psycopg.connect(dsn) as connection:
        return [(one.rule, one.untold) for one in read_firing(connection)]
