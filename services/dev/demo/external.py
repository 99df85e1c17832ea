"""The demo against a system that already runs: send, wait, count.

This module starts, stops and creates nothing. An operator runs the pipeline
``departures``, in containers or on a cluster, and it has read no events yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from tallyweir.services.dev.demo.demo_world import (
    PIPELINE,
    PIPELINE_SOURCE,
    TOPIC,
    DemoWorld,
    Ledger,
)
from tallyweir.services.dev.demo.drill import DemoProgress, DrillReport, Watcher
from tallyweir.services.dev.demo.scenario import FlightStream, Scenario
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.driver_process import SILENCE_MAX_S
from tallyweir.services.process.endpoints import (
    Endpoints,
    given_home_dsn,
    require_kafka_bootstrap,
    shown_dsn,
)
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.databases import parse_databases
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition

_POLL_S = 1.0
#: Messages that are sent and acknowledged before the others. A partition without events
#: does not hold the watermark, so a driver that already runs could read a day of one
#: partition before the first event of another. These messages are within one hour, in
#: every partition.
_FIRST_MESSAGES = 40


@contextmanager
def external_world() -> Iterator[DemoWorld]:
    """Find the servers that the environment names.

    Raises:
        ConfigurationError: It names no server, or the topic already has events.
        RetryableError: A server does not answer.
    """
    bootstrap = require_kafka_bootstrap()
    dsn = given_home_dsn()
    if dsn is None:
        raise ConfigurationError(
            "SETTING_MISSING",
            saw="TALLYWEIR_HOME_DSN is not set.",
            why="The demo counts the results in the home database.",
            fix="Set it, or TALLYWEIR_HOME_DSN_FILE.",
        )
    _refuse_used_topic(KafkaAdmin(bootstrap, TOPIC))
    home = connect(dsn, application_name="tallyweir demo")
    try:
        home.autocommit = True
        yield DemoWorld(
            directory=state_directory(),
            endpoints=Endpoints(kafka_bootstrap=bootstrap, home_dsn=dsn),
            has_own_servers=False,
            shown_dsn=shown_dsn(dsn),
            pass_file=None,
            pipeline_file=PIPELINE_SOURCE,
            topic=TOPIC,
            home=home,
            databases=parse_databases(os.environ, {}),
        )
    finally:
        home.close()


def send_and_wait(
    world: DemoWorld, scenario: Scenario, watcher: Watcher
) -> DrillReport:
    """Send all messages; return when the pipeline has committed them.

    Raises:
        RetryableError: ``DEMO_NOT_READ`` if the pipeline committed nothing for a while,
            or a server went away.
    """
    bootstrap = world.endpoints.kafka_bootstrap
    stream = FlightStream(bootstrap, world.pipeline_file, scenario)
    progress = DemoProgress()

    def show(total: int) -> None:
        watcher.show(replace(progress, sent=total))

    sent = stream.send(_FIRST_MESSAGES, show) + stream.send(None, show)
    watcher.tell(f"{sent:,} messages sent")
    topic = KafkaAdmin(bootstrap, world.topic)
    ends = {
        place: position.log_end_offset
        for place, position in topic.read_positions().items()
    }
    _await_positions(Ledger(world.home, PIPELINE), ends, watcher)
    return DrillReport(
        expectation=stream.expectation,
        expected=stream.expected,
        kills=0,
        kills_wanted=0,
        checkpoint_deletions=0,
    )


def _await_positions(
    ledger: Ledger, ends: Mapping[TopicPartition, int], watcher: Watcher
) -> None:
    positions = ledger.read_visible_positions()
    deadline = time.monotonic() + SILENCE_MAX_S
    while any(positions.get(place, 0) < end for place, end in ends.items()):
        if time.monotonic() > deadline:
            raise RetryableError(
                "DEMO_NOT_READ",
                saw=f"Nothing was committed for {SILENCE_MAX_S:.0f} s.",
                why="The pipeline's driver should read the events that the demo sent.",
                fix="Check the driver: read its log, and run tallyweir status "
                f"{PIPELINE}.",
            )
        time.sleep(_POLL_S)
        former, positions = positions, ledger.read_visible_positions()
        if positions != former:
            deadline = time.monotonic() + SILENCE_MAX_S
            read = sum(positions.values())
            watcher.tell(f"committed up to offset {read:,}, over all partitions")


def _refuse_used_topic(topic: KafkaAdmin) -> None:
    used = [
        str(place)
        for place, position in topic.read_positions().items()
        if position.log_end_offset
    ]
    if used:
        raise ConfigurationError(
            "DEMO_TOPIC_IN_USE",
            saw=f"{', '.join(sorted(used))} of the topic already have events.",
            why="The demo counts from zero; its events have the same IDs each time.",
            fix="Start with fresh data; for compose: docker compose down -v.",
        )
