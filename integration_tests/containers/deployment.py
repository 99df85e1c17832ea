"""Starts the services of docker/compose.yaml by testcontainers, exactly as described.

What a container may do, what it is told and what it mounts is read from the compose
file, so that what is tested is what is deployed. Each deployment has a network and
volumes of its own, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import yaml
from docker.models.containers import Container
from docker.types import DriverConfig, Mount
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tallyweir.services.local.embedded.state_directory import ROOT

# testcontainers' own reaper is an image that a place without a registry has not.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

_COMPOSE = ROOT / "docker" / "compose.yaml"
_POLL_S = 0.5
_START_TIMEOUT_S = 180.0
_SECOND_NS = 1_000_000_000
_JOBS = frozenset({"migrate", "kafka-access"})
#: What compose and the engine call by the same name.
_PASSED_ON = (
    *("user", "read_only", "cap_drop", "security_opt", "init"),
    *("mem_limit", "shm_size", "entrypoint"),
)


class Deployment:
    """A running system, or parts of it.

    Args:
        secrets: What docker/make-secrets has made.
        settings: Further environment variables, by service.
        mounts: Instead of what the compose file mounts, by what it mounts.
        volume_options: Of Docker's local driver, by volume.
    """

    def __init__(
        self,
        secrets: Path,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        *,
        mounts: Mapping[str, Path] | None = None,
        volume_options: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._compose = yaml.safe_load(_COMPOSE.read_text("utf-8"))
        self._secrets = secrets
        self._settings = settings or {}
        self._mounts = mounts or {}
        self._volume_options = volume_options or {}
        self._name = f"tallyweir-test-{uuid.uuid4().hex[:8]}"
        self._network = Network()
        self._started: dict[str, DockerContainer] = {}

    @property
    def services(self) -> list[str]:
        """The services that were started, without what was only run."""
        return [name for name in self._started if name in self._compose["services"]]

    @property
    def network(self) -> str:
        """Name of the network that the containers are on."""
        return str(self._network.name)

    def open(self) -> None:
        """Make the network that the containers will be on."""
        self._network.create()

    def close(self) -> None:
        """Remove containers, volumes and network."""
        for container in reversed(self._started.values()):
            container.stop(force=True, delete_volume=True)
        client = self._network._docker.client
        for volume in client.volumes.list():
            if volume.name.startswith(self._name):
                volume.remove(force=True)
        self._network.remove()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Leave the processors to another deployment while the block runs."""
        running = [c.get_wrapped_container() for c in self._started.values()]
        for container in running:
            container.reload()
        resting = [one for one in running if one.status == "running"]
        for container in resting:
            container.pause()
        try:
            yield
        finally:
            for container in resting:
                container.unpause()

    def start(self, *services: str) -> None:
        """Start services, and wait until each is healthy or, as a job, has ended well.

        Raises:
            AssertionError: One ended badly, or was not healthy in time; with its log.
        """
        for service in services:
            self._started[service] = self._make(service).start()
        for service in services:
            self.await_ready(service)

    def run(self, service: str, *command: str) -> Container:
        """Start a further container of a service with another command."""
        made = self._make(service, command=list(command)).start()
        self._started[f"{service}-{len(self._started)}"] = made
        return made.get_wrapped_container()

    def hold(self, volume: str) -> Container:
        """Mount a volume at /held, for as long as the deployment lasts.

        One that lies in memory is lost as soon as no container has it.
        """
        image = self._compose["services"]["tallyweir"]["image"]
        mount = self._volume(volume, "/held")
        holder = DockerContainer(image).with_kwargs(
            mounts=[mount], entrypoint=["sleep"], user="0", init=True
        )
        self._started[f"hold-{volume}"] = holder.with_command(["infinity"]).start()
        return holder.get_wrapped_container()

    def start_python(
        self,
        program: str,
        *arguments: str,
        service: str = "kafka-access",
        alias: str | None = None,
    ) -> Container:
        """Start a file of ``programs`` with the image and secrets of a service.

        As ``kafka-access`` it is Kafka's administrator. Others find it by its alias.
        """
        path = Path(__file__).with_name("programs") / f"{program}.py"
        command = ["-P", "-c", path.read_text("utf-8"), *arguments]
        made = self._make(service, command=command, entrypoint=["python"])
        if alias is not None:
            made.with_network_aliases(alias)
        self._started[f"python-{len(self._started)}"] = made.start()
        return made.get_wrapped_container()

    def run_python(
        self, program: str, *arguments: str, service: str = "kafka-access"
    ) -> str:
        """Run a program to its end; return what it prints.

        Raises:
            AssertionError: It failed.
        """
        return output_of(self.start_python(program, *arguments, service=service))

    def container(self, service: str) -> Container:
        """Return the engine's handle of a service's container, with fresh state."""
        container = self._started[service].get_wrapped_container()
        container.reload()
        return container

    def address(self, service: str) -> str:
        """Return the address of a container on the network, for this host."""
        networks = self.container(service).attrs["NetworkSettings"]["Networks"]
        return str(networks[self.network]["IPAddress"])

    def await_ready(self, service: str) -> None:
        """Wait until a service is healthy; see ``start``."""
        is_job = service in _JOBS
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            state = self.container(service).attrs["State"]
            if is_job and state["Status"] == "exited" and state["ExitCode"] == 0:
                return
            if state.get("Health", {}).get("Status") == "healthy":
                return
            time.sleep(_POLL_S)
        log = self.log(service)[-4_000:]
        raise AssertionError(f"{service} is not ready: {state}\n{log}")

    def log(self, service: str) -> str:
        """Return what a service has written so far."""
        return str(self.container(service).logs().decode(errors="replace"))

    def query(self, sql: str, database: str = "tallyweir") -> list[list[str]]:
        """Ask Postgres as its superuser; rows of texts, without nulls."""
        with self.connected(database) as connection:
            found = connection.execute(sql.encode()).pgresult
            assert found is not None
            return [
                [
                    (found.get_value(row, column) or b"").decode()
                    for column in range(found.nfields)
                ]
                for row in range(found.ntuples)
            ]

    @contextmanager
    def connected(
        self, database: str = "tallyweir"
    ) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Come to Postgres from this host as its superuser, without transactions."""
        password = self._secrets / "postgres_superuser.password"
        with psycopg.connect(
            host="postgres",
            hostaddr=self.address("postgres"),
            dbname=database,
            user="postgres",
            password=password.read_text("utf-8"),
            sslmode="verify-full",
            sslrootcert=str(self._secrets / "ca.pem"),
            options="-c timezone=UTC",
            autocommit=True,
        ) as connection:
            yield connection

    def _make(
        self,
        service: str,
        command: list[str] | None = None,
        entrypoint: list[str] | None = None,
    ) -> DockerContainer:
        spec = dict(self._compose["services"][service])
        if entrypoint is not None:
            spec["entrypoint"] = entrypoint
        container = DockerContainer(spec["image"]).with_network(self._network)
        container.tmpfs = dict(_split(mount) for mount in spec.get("tmpfs", ()))
        limits = self._limits(spec)
        if command is None:
            container.with_network_aliases(service)
            limits["hostname"] = service
            limits["healthcheck"] = _healthcheck(spec)
            limits["restart_policy"] = _restart_policy(spec)
        container.with_kwargs(**limits)
        environment = {**spec.get("environment", {}), **self._settings.get(service, {})}
        for name, value in environment.items():
            container.with_env(name, str(value))
        given = command or spec.get("command")
        if given is not None:
            container.with_command([str(part) for part in given])
        return container

    def _limits(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        limits: dict[str, Any] = {
            "mounts": [*self._volumes(spec), *self._secret_mounts(spec)]
        }
        limits.update({key: spec[key] for key in _PASSED_ON if key in spec})
        return limits

    def _volumes(self, spec: Mapping[str, Any]) -> Iterator[Mount]:
        for volume in spec.get("volumes", ()):
            source, target, *mode = volume.split(":")
            if source.startswith("."):
                path = self._mounts.get(source, (_COMPOSE.parent / source).resolve())
                yield Mount(target, str(path), type="bind", read_only=mode == ["ro"])
            else:
                yield self._volume(source, target)

    def _volume(self, volume: str, target: str) -> Mount:
        options = self._volume_options.get(volume)
        driver = DriverConfig("local", dict(options)) if options else None
        name = f"{self._name}-{volume}"
        return Mount(target, name, type="volume", driver_config=driver)

    def _secret_mounts(self, spec: Mapping[str, Any]) -> Iterator[Mount]:
        for secret in spec.get("secrets", ()):
            file = Path(self._compose["secrets"][secret["source"]]["file"]).name
            target = secret["target"]
            if not target.startswith("/"):
                target = f"/run/secrets/{target}"
            yield Mount(target, str(self._secrets / file), type="bind", read_only=True)


@contextmanager
def running(deployment: Deployment) -> Iterator[Deployment]:
    """Give a deployment its network, and remove all of it however the block ends."""
    deployment.open()
    try:
        yield deployment
    finally:
        deployment.close()


def output_of(container: Container) -> str:
    """Wait for the end of a program, and return what it has printed.

    Raises:
        AssertionError: It failed.
    """
    code = container.wait(timeout=_START_TIMEOUT_S)["StatusCode"]
    assert code == 0, container.logs().decode()
    return str(container.logs(stderr=False).decode())


def last_json(log: str) -> dict[str, Any]:
    """Return the last line of JSON that a command has printed."""
    lines = [line for line in log.splitlines() if line.startswith("{")]
    assert lines, log
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _split(tmpfs: str) -> tuple[str, str]:
    path, _, options = tmpfs.partition(":")
    return path, options


def _restart_policy(spec: Mapping[str, Any]) -> dict[str, str] | None:
    name = spec.get("restart", "no")
    return None if name == "no" else {"Name": name}


def _healthcheck(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    check = spec.get("healthcheck")
    if check is None:
        return None
    return {
        "test": check["test"],
        "interval": int(check["interval"].rstrip("s")) * _SECOND_NS,
        "timeout": int(check["timeout"].rstrip("s")) * _SECOND_NS,
        "retries": check["retries"],
    }
