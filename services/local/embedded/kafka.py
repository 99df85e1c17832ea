"""A Kafka broker for one machine: KRaft, broker and controller in one process."""

from __future__ import annotations

import json
import os
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallyweir.services.local.embedded.embedded_server import EmbeddedServer
from tallyweir.services.local.embedded.jars import broker_classpath
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.state_directory import write_whole

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


class EmbeddedKafka(EmbeddedServer):
    """The broker whose data, log and ports live in one directory."""

    name = "Kafka"
    ports: ClassVar[tuple[str, ...]] = ("port", "controller_port")
    #: Further options of its JVM.
    java_options: tuple[str, ...] = ()

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients; kept over restarts if the port is free."""
        return f"127.0.0.1:{self._port}"

    def _settings(self, data: Path, ports: dict[str, int]) -> str:
        # Java reads property files as Latin-1, with JSON's escapes for other letters.
        return _SETTINGS.format(data=json.dumps(str(data))[1:-1], **ports)

    def _spawn(self) -> None:
        ports = self._choose_ports()
        settings = self.directory / "kraft.properties"
        if not self._data.exists():
            self._format(ports)
        write_whole(settings, self._settings(self._data, ports))
        logging = self.directory / "log4j2.xml"
        write_whole(logging, _LOGGING)
        self.daemon.spawn(
            [
                *(str(find_java()), _HEAP, "-Djava.awt.headless=true"),
                f"-Dlog4j2.configurationFile={logging.as_uri()}",
                *self.java_options,
                *("-cp", broker_classpath(), "kafka.Kafka", str(settings)),
            ],
            dict(os.environ),
        )

    def _format(self, ports: dict[str, int]) -> None:
        partial = self._partial_data()
        settings = self.directory / "format.properties"
        write_whole(settings, self._settings(partial, ports))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._make_data(
            [
                *(str(find_java()), "-cp", broker_classpath()),
                *("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"),
                *("--config", str(settings)),
            ],
            partial,
            code="KAFKA_NOT_FORMATTED",
        )

    def _answers(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=_PROBE_TIMEOUT_S).brokers)
        except KafkaException:
            return False
