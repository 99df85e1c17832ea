"""A system under load, for scenarios to disturb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docker.models.containers import Container
from psycopg import sql

from integration_tests.containers.deployment import Deployment
from integration_tests.containers.patience import await_true
from integration_tests.containers.reckoning import FLIGHTS, Reckoning
from integration_tests.containers.traffic import Traffic
from tallyweir.sinks.postgres.server.naming import staging_table
from tallyweir.sinks.protocol.identity import Epoch

#: How long the pipeline may stand still once a fault is over.
_RECOVERY_MAX_S = 300.0


class Scene:
    """One system for all scenarios, each after what the former have done to it.

    Args:
        system: Running.
        secrets: Of the system.
        contracts: Folder of the pipelines' contracts.
        disk: Has the volume of Postgres at /held.
    """

    def __init__(
        self, system: Deployment, secrets: Path, contracts: Path, disk: Container
    ) -> None:
        self.system = system
        self._reckoning = Reckoning(system, contracts, FLIGHTS)
        self._secrets = secrets
        self._disk = disk

    @contextmanager
    def under_load(self, name: str) -> Iterator[Traffic]:
        """Send while the block runs; then see batches go on, and reckon.

        Raises:
            AssertionError: The pipeline does not recover, or miscounts.
        """
        traffic = Traffic(self.system, self._secrets, name)
        try:
            self.await_batches(2)
            yield traffic
            self.await_batches(2)
        finally:
            traffic.stop()
        self._reckoning.reckon(traffic.promises)

    def await_batches(self, batches: int) -> None:
        """Wait until so many more batches are published."""
        wanted = self.last_sequence() + batches
        await_true(
            lambda: self.last_sequence() >= wanted,
            f"batch {wanted} to be published",
            _RECOVERY_MAX_S,
        )

    def last_sequence(self) -> int:
        """Return the number of the newest batch."""
        rows = self.system.query(
            "SELECT last_sequence FROM tallyweir.pipeline WHERE pipeline = 'departures'"
        )
        return int(rows[0][0]) if rows else 0

    def batches_by_epoch(self) -> dict[int, int]:
        """Count the published batches of each driver."""
        rows = self.system.query(
            "SELECT epoch, count(*) FROM tallyweir.batch "
            "WHERE pipeline = 'departures' GROUP BY epoch"
        )
        return {int(epoch): int(batches) for epoch, batches in rows}

    def count_restarts(self) -> int:
        """Count how often the driver said that it starts over, and why."""
        return self.system.log("driver").count('"starting over"')

    def restart(self, service: str) -> None:
        """Stop a service as an operator does, start it, and wait until it is ready."""
        self.system.container(service).stop(timeout=130)
        self.system.container(service).start()
        self.system.await_ready(service)

    def staging_of(self, table: str) -> sql.Identifier:
        """Name one of the newest driver's staging tables at home, of even batches."""
        number = "SELECT pipeline_number FROM tallyweir.pipeline"
        epoch = "SELECT max(epoch) FROM tallyweir.epoch_claim"
        ((found_number, found_epoch),) = self.system.query(
            f"SELECT ({number} WHERE pipeline = 'departures'), "
            f"({epoch} WHERE pipeline = 'departures')"
        )
        return staging_table(
            int(found_number), Epoch(int(found_epoch)), table, sequence=0
        )

    def fill_disk(self) -> None:
        """Leave Postgres no byte, whatever it takes itself meanwhile."""
        self._on_disk("cat /dev/zero > /held/ballast; test -s /held/ballast")

    def free_disk(self) -> None:
        """Give all of it back."""
        self._on_disk("rm /held/ballast")

    def _on_disk(self, script: str) -> None:
        code, output = self._disk.exec_run(["sh", "-c", script])
        assert code == 0, output.decode()
