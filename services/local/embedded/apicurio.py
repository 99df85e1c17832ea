"""A schema registry that answers Confluent's REST API: Apicurio Registry."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tallyweir.services.local.embedded.embedded_server import EmbeddedServer
from tallyweir.services.local.embedded.jars import ensure_jars
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.state_directory import exclusive
from tallyweir.sinks.registry_client import (
    CA_VARIABLE,
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
)

#: It does not run on an older one.
_JAVA = 21
_PROBE_TIMEOUT_S = 2.0
_PATH = "/apis/ccompat/v7"


class Apicurio(EmbeddedServer):
    """The registry whose schemas, log and ports live in one directory.

    Args:
        directory: Its directory.
        login: The user and the password that it asks for; None to let everyone in.
        certificates: What ``make_certificates`` has made, for TLS at a port of its own;
            None for no TLS.
    """

    name = "Apicurio"
    ports = ("port", "tls_port", "management_port")

    def __init__(
        self,
        directory: Path,
        login: tuple[str, str] | None = None,
        certificates: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self._login = login
        self._certificates = certificates

    @property
    def url(self) -> str:
        """The root of the API, with the login; kept over restarts if it can be."""
        login = "" if self._login is None else f"{':'.join(self._login)}@"
        return f"http://{login}127.0.0.1:{self._port}{_PATH}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which a driver reaches it, by TLS if it speaks that."""
        settings = {URL_VARIABLE: f"http://127.0.0.1:{self._port}{_PATH}"}
        if self._certificates is not None:
            tls_port = self._read_ports()["tls_port"]
            settings = {
                URL_VARIABLE: f"https://localhost:{tls_port}{_PATH}",
                CA_VARIABLE: str(self._certificates / "ca.pem"),
            }
        if self._login is None:
            return settings
        user, password = self._login
        secret = self.directory / "password"
        secret.write_text(f"{password}\n")
        login = {USER_VARIABLE: user, f"{PASSWORD_VARIABLE}_FILE": str(secret)}
        return {**settings, **login}

    def register(self, subject: str, schemas: Sequence[str]) -> tuple[int, ...]:
        """Register versions of a subject in Avro, in this order; return their ids.

        A registry without schemas gives the same versions the same ids again.

        Raises:
            Exception: It does not answer; of whichever class the client has for it.
        """
        # A client of its own, because a client remembers ids over a wipe.
        with SchemaRegistryClient(self._client_settings) as client:
            return tuple(
                client.register_schema(subject, Schema(text, "AVRO"))
                for text in schemas
            )

    def wipe(self) -> None:
        """Take all schemas away, and start with none."""
        self.stop()
        shutil.rmtree(self._data)
        self.start()

    def _spawn(self) -> None:
        ports = self._choose_ports()
        self._data.mkdir(exist_ok=True)
        login = [] if self._login is None else _asking_for(*self._login)
        tls = _with_tls(self._certificates, ports["tls_port"])
        self.daemon.spawn(
            [
                *(str(find_java((_JAVA,))), "-Xmx512m", "-XX:TieredStopAtLevel=1"),
                "-Dquarkus.http.host=127.0.0.1",
                f"-Dquarkus.http.port={ports['port']}",
                "-Dquarkus.management.host=127.0.0.1",
                f"-Dquarkus.management.port={ports['management_port']}",
                f"-Dapicurio.datasource.url={_database(self._data)}",
                *login,
                *tls,
                *("-jar", str(_unpacked() / "quarkus-run.jar")),
            ],
            dict(os.environ),
        )

    def _answers(self) -> bool:
        try:
            with SchemaRegistryClient(self._client_settings) as client:
                client.get_subjects()
        except Exception:  # noqa: BLE001 - it passes on the errors of its HTTP library
            return False
        return True

    @property
    def _client_settings(self) -> dict[str, object]:
        return {"url": self.url, "max.retries": 0, "timeout": _PROBE_TIMEOUT_S}


def _database(data: Path) -> str:
    # Without a delay, what it has told a client survives SIGKILL.
    return f"jdbc:h2:file:{data}/registry;WRITE_DELAY=0"


def _asking_for(user: str, password: str) -> list[str]:
    users = "quarkus.security.users.embedded"
    return [
        "-Dapicurio.authn.enabled=true",
        "-Dapicurio.auth.role-based-authorization=true",
        "-Dquarkus.http.auth.basic=true",
        f"-D{users}.plain-text=true",
        f"-D{users}.users.{user}={password}",
        f"-D{users}.roles.{user}=sr-admin",
    ]


def _with_tls(certificates: Path | None, port: int) -> list[str]:
    if certificates is None:
        return []
    ssl = "quarkus.http.ssl"
    return [
        f"-D{ssl}-port={port}",
        f"-D{ssl}.certificate.files={certificates / 'server.crt'}",
        f"-D{ssl}.certificate.key-files={certificates / 'server.key'}",
    ]


def _unpacked() -> Path:
    """Return the folder of the program; unpacked once, as a whole."""
    (archive,) = ensure_jars("registry")
    folder = archive.parent / archive.name.removesuffix(".tar.gz")
    with exclusive(archive.parent):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=archive.parent) as work:
                with tarfile.open(archive) as packed:
                    packed.extractall(work, filter="data")
                Path(work).rename(folder)
                Path(work).mkdir()
    return folder
