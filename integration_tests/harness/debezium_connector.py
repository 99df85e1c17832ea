"""Debezium's Postgres connector in a standalone Kafka Connect, and its source.

Both come from packages, as test-jars.lock lists them.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from integration_tests.harness.metrics_client import free_port, get
from integration_tests.harness.postgres_driver import execute
from integration_tests.harness.written_topic import read_topic
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.services.local.embedded.jars import TEST_JAR_LOCK, ensure_jars
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres

_DEADLINE_S = 90.0
_POLL_S = 0.1
_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"


def start_source(directory: Path) -> EmbeddedPostgres:
    """Start a Postgres whose changes can be followed."""
    server = EmbeddedPostgres(directory)
    server.start()
    execute(server.dsn, "ALTER SYSTEM SET wal_level = logical")
    server.stop()
    server.start()
    return server


def as_avro(registry: Apicurio) -> dict[str, str]:
    """Return the settings by which a connector writes Avro behind a registry's ids."""
    url = urlsplit(registry.url)
    converter = {
        "registry.url": f"http://{url.hostname}:{url.port}/apis/registry/v2",
        "registry.auto-register": "true",
        "registry.auto-register.if-exists": "RETURN_OR_UPDATE",
        "registry.as-confluent": "true",
        "registry.use-id": "globalId",
        "registry.headers.enabled": "false",
        "auth.username": url.username,
        "auth.password": url.password,
    }
    given = {
        f"value.converter.apicurio.{name}": value
        for name, value in converter.items()
        if value is not None
    }
    return {"value.converter": _AVRO, **given}


class DebeziumConnector:
    """Follows the tables of a source, in a process of its own.

    Args:
        directory: Of the connector's own; holds its settings, offsets and log.
        kafka_bootstrap: Where the broker is.
        source_dsn: The followed database.
        prefix: How the topics' names begin.
        settings: Further properties of the connector.
    """

    def __init__(
        self,
        directory: Path,
        kafka_bootstrap: str,
        source_dsn: str,
        prefix: str,
        settings: Mapping[str, str],
    ) -> None:
        self._directory = directory
        self._name = prefix
        self._is_avro = _AVRO in settings.values()
        self._port = free_port()
        plugin = directory / "plugins" / "debezium"
        plugin.mkdir(parents=True)
        for jar in ensure_jars("debezium-3.6", lock=TEST_JAR_LOCK):
            (plugin / jar.name).symlink_to(jar)
        as_json = {
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
        _write(
            directory / "worker.properties",
            {
                "bootstrap.servers": kafka_bootstrap,
                "offset.storage.file.filename": str(directory / "offsets"),
                "offset.flush.interval.ms": "200",
                "plugin.path": str(plugin.parent),
                "plugin.discovery": "service_load",
                "listeners": f"http://127.0.0.1:{self._port}",
                **as_json,
            },
        )
        source = conninfo_to_dict(source_dsn)
        _write(
            directory / "source.properties",
            {
                "name": prefix,
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "plugin.name": "pgoutput",
                "publication.autocreate.mode": "filtered",
                "database.hostname": str(source["host"]),
                "database.port": str(source["port"]),
                "database.user": str(source["user"]),
                "database.password": str(source.get("password", "")),
                "database.dbname": str(source["dbname"]),
                "topic.prefix": prefix,
                "topic.creation.default.replication.factor": "1",
                "topic.creation.default.partitions": "1",
                "skipped.operations": "none",
                **as_json,
                **settings,
            },
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; return when it streams."""
        jars = ensure_jars("connect-4.3", lock=TEST_JAR_LOCK)
        if self._is_avro:
            jars += ensure_jars("avro-converter-2.6", lock=TEST_JAR_LOCK)
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(find_java()), "-Xmx384m", "-XX:TieredStopAtLevel=1"),
                    *("-cp", ":".join(map(str, jars))),
                    "org.apache.kafka.connect.cli.ConnectStandalone",
                    str(self._directory / "worker.properties"),
                    str(self._directory / "source.properties"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        give_up = time.monotonic() + _DEADLINE_S
        while '"tasks":[{"id":0,"state":"RUNNING"' not in self._status():
            assert self._process.poll() is None, self._log()
            assert time.monotonic() < give_up, self._log()
            time.sleep(_POLL_S)

    def remove(self) -> None:
        """Kill it, as a machine that loses power does, and take away what it kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_DEADLINE_S)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _status(self) -> str:
        """Return what the worker says of the connector; nothing while it starts."""
        status, body = get(self._port, f"/connectors/{self._name}/status")
        return body if status == 200 else ""

    def _log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-5_000:]


def await_records(
    kafka_bootstrap: str, topic: str, count: int
) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of the first records of a topic's only partition."""
    give_up = time.monotonic() + _DEADLINE_S
    while len(found := read_topic(kafka_bootstrap, topic)) < count:
        assert time.monotonic() < give_up, found
        time.sleep(_POLL_S)
    return [(message.key(), message.value()) for message in found[:count]]


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
