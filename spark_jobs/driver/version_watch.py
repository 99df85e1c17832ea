"""Watch the first batches of an updated pipeline, and roll back if they are worse.

The update says how many batches to watch. The driver rolls back by the same act as an
operator, and then ends, because its file describes a version that is no longer in
force.
"""

from __future__ import annotations

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.steering import ChangeRequest, pause, rollback
from tallyweir.sinks.postgres.versions.version_health import VersionHealth, read_health
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

_NAME = "tallyweir version watch"

#: The errors that end a driver only because of its own pipeline.
_OWN_FAILURES = frozenset(
    {
        "DRIVER_STAGE_FAILED",
        "EVENT_DOUBLED",
        "SPARK_ENDED",
        "SPARK_JOB_FAILED",
        "SPARK_QUERY_FAILED",
        "STAGING_UNSETTLED",
        "STATEFUL_FUNCTION_FAILED",
        "STATE_VERSION",
        "TABLE_REFUSES_ROWS",
        "TRANSFORM_COLUMNS",
        "TRANSFORM_FAILED",
    }
)


class VersionWatch:
    """Watches the version that a driver runs.

    Args:
        dsn: The connection string of the home database.
        pipeline: The pipeline's name.
    """

    def __init__(self, dsn: str, pipeline: str) -> None:
        self._dsn = dsn
        self._pipeline = pipeline
        self._is_watching = False
        self._rolled_back: ConfigurationError | None = None

    def begin(self) -> None:
        """Find out whether the version in force is watched; call this for each claim.

        Raises:
            RetryableError: The server is unreachable.
        """
        self._is_watching = self._read() is not None

    def check_batch(self) -> None:
        """Roll back if the version is worse with the batch that is just published.

        Raises:
            ConfigurationError: ``ROLLED_BACK``, if the driver has just rolled back.
            RetryableError: ``PAUSED``: the version is worse, and cannot be rolled back.
                Another code if the server is unreachable; the next check includes this
                batch.

        Crash:
            Before the rollback commits, the version is in force and watched, and the
            next check includes this batch. Afterwards the former version is in force.
        """
        if not self._is_watching:
            return
        health = self._read()
        if health is None:
            self._is_watching = False
            return
        worse = health.find_worse()
        if worse is not None:
            self._go_back(health, worse)

    def check_failure(self, error: TallyweirError) -> None:
        """Roll back if the driver gives up because of its own pipeline.

        Raises:
            ConfigurationError: ``ROLLED_BACK``, if the driver has rolled back now or
                before: the batch that was staged ahead may meet the fence first.
            RetryableError: As ``check_batch``.
        """
        if self._rolled_back is not None and self._rolled_back is not error:
            raise self._rolled_back from error
        if not self._is_watching or error.code not in _OWN_FAILURES:
            return
        health = self._read()
        if health is not None:
            worse = f"the driver of version {health.version} gives up: {error.code}"
            self._go_back(health, worse)

    def _read(self) -> VersionHealth | None:
        with connect(self._dsn, application_name=_NAME) as home:
            return read_health(home, self._pipeline)

    def _go_back(self, health: VersionHealth, worse: str) -> None:
        self._is_watching = False
        request = ChangeRequest(pipeline=self._pipeline, reason=f"watched: {worse}")
        with connect(self._dsn, application_name=_NAME) as home:
            try:
                rollback(home, request, health.former)
            except ConfigurationError as refused:
                pause(home, self._pipeline, reason=f"{worse}; {refused.saw}")
                raise RetryableError(
                    "PAUSED",
                    saw=f"The driver has paused the pipeline: {worse}.",
                    why=f"It cannot be rolled back: {refused.saw} {refused.why}",
                    fix=f"{refused.fix} Or correct the file and update again; then "
                    f"tallyweir resume {self._pipeline}.",
                ) from refused
        self._rolled_back = ConfigurationError(
            "ROLLED_BACK",
            saw=f"Version {health.version} of {self._pipeline} is rolled back to "
            f"version {health.former}: {worse}.",
            why="The update asked for it by --watch.",
            fix="Start it with the former file "
            f"(tallyweir versions {self._pipeline} --show {health.former}); look into "
            "tallyweir.dead_letter for the reasons, and update again.",
        )
        raise self._rolled_back
