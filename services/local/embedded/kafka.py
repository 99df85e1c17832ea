"""A Kafka broker for one machine: KRaft, broker and controller in one process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from services.local.embedded.daemon import Daemon, free_port
from services.local.embedded.jars import broker_classpath
from services.local.embedded.java import find_java
from services.local.embedded.state_directory import exclusive, write_whole
from sinks.protocol.errors import FatalError

_START_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 60.0
_PROBE_TIMEOUT_S = 1.0
_HEAP = "-Xmx512m"

# A single broker has no peer to replicate to, and fewer partitions of the internal
# topics start faster. Topics are created only on purpose: a typo must not create one.
# After kill -9, the controller admits the broker again only when its former session has
# timed out.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
"""

_LOGGING = """\
<Configuration status="warn">
  <Appenders><Console name="out">
    <PatternLayout pattern="%d %p %c{1} %m%n"/>
  </Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


def _settings(data: Path, ports: dict[str, int]) -> str:
    # Java reads property files as Latin-1, with JSON's escapes for other characters.
    return _SETTINGS.format(data=json.dumps(str(data))[1:-1], **ports)


class EmbeddedKafka:
    """The broker whose data, log and port live in one directory.

    Args:
        directory: Directory of the broker; made when missing. A directory has one
            broker, whichever process starts it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.daemon = Daemon("Kafka", self.directory)
        self._ports_file = self.directory / "ports.json"
        self._data = self.directory / "data"

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients; kept over restarts if the port is free."""
        return f"127.0.0.1:{self._ports()['port']}"

    def last_port(self) -> int | None:
        """Return the port of the current or last run; None if it never ran."""
        return self._ports()["port"] if self._ports_file.exists() else None

    def is_running(self) -> bool:
        """Whether the process runs; ``start`` also waits until it answers."""
        return self.daemon.find() is not None

    def start(self) -> bool:
        """Start the broker if needed, and wait until it answers; keep all data.

        Returns:
            True if the broker was started, False if it was already running.

        Raises:
            RetryableError: The broker did not start; the error shows the end of its
                log.

        Crash:
            After a crash at any point, the next call recovers: a half-formatted log
            directory was not yet moved into place, and a started broker has written its
            pid.
        """
        with exclusive(self.directory):
            was_running = self.is_running()
            if not was_running:
                self._spawn()
            self.daemon.await_ready(self._answers, deadline_s=_START_DEADLINE_S)
        return not was_running

    def stop(self) -> bool:
        """Stop the broker cleanly.

        Returns:
            Whether the broker was running.

        Raises:
            RetryableError: The broker did not end in time.
        """
        with exclusive(self.directory):
            return self.daemon.stop(signal.SIGTERM, deadline_s=_STOP_DEADLINE_S)

    def delete_data(self) -> None:
        """Stop the broker, and remove every topic and all else in the directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _spawn(self) -> None:
        ports = self._choose_ports()
        settings = self.directory / "kraft.properties"
        if not self._data.exists():
            self._format(ports)
        write_whole(settings, _settings(self._data, ports))
        logging = self.directory / "log4j2.xml"
        write_whole(logging, _LOGGING)
        self.daemon.spawn(
            [
                *(str(find_java()), _HEAP, "-Djava.awt.headless=true"),
                f"-Dlog4j2.configurationFile={logging.as_uri()}",
                *("-cp", broker_classpath(), "kafka.Kafka", str(settings)),
            ],
            dict(os.environ),
        )

    def _format(self, ports: dict[str, int]) -> None:
        partial = self.directory / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        settings = self.directory / "format.properties"
        write_whole(settings, _settings(partial, ports))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [
                *(str(find_java()), "-cp", broker_classpath()),
                *("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"),
                *("--config", str(settings)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise FatalError(
                "KAFKA_NOT_FORMATTED",
                saw=f"Kafka's storage tool failed: {done.stdout}{done.stderr}",
                why="A broker starts on a formatted directory only.",
                fix=f"check that {self.directory} can be written and is not full",
            )
        partial.rename(self._data)

    def _ports(self) -> dict[str, int]:
        ports: dict[str, int] = json.loads(self._ports_file.read_text())
        return ports

    def _choose_ports(self) -> dict[str, int]:
        known = self._ports() if self._ports_file.exists() else {}
        ports = {
            name: free_port(known.get(name)) for name in ("port", "controller_port")
        }
        write_whole(self._ports_file, json.dumps(ports))
        return ports

    def _answers(self) -> bool:
        # Check the process first: another program may hold the port.
        if self.daemon.find() is None:
            return False
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=_PROBE_TIMEOUT_S).brokers)
        except KafkaException:
            return False
