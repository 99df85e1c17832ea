"""Watches the first batches of an updated pipeline, and goes back if they are worse.

Who updates says how many. It is the driver that goes back, by the same act as a
person, and it ends then: its file is that of a version that is in force no more.
"""

from __future__ import annotations

from sinks.postgres.server.connection import connect
from sinks.postgres.steering import ChangeRequest, pause, rollback
from sinks.postgres.versions.version_health import VersionHealth, read_health
from sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

_NAME = "tallyweir version watch"

#: What ends a driver for what its own pipeline does, and for nothing else.
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
    """Looks after the version that a driver runs.

    Args:
        dsn: Of the home.
        pipeline: Its name.
    """

    def __init__(self, dsn: str, pipeline: str) -> None:
        self._dsn = dsn
        self._pipeline = pipeline
        self._is_watching = False
        self._rolled_back: ConfigurationError | None = None

    def begin(self) -> None:
        """Find out whether the version in force is watched; for each claim.

        Raises:
            RetryableError: The server is unreachable.
        """
        self._is_watching = self._read() is not None

    def check_batch(self) -> None:
        """Go back if with the batch that is just published the version is worse.

        Raises:
            ConfigurationError: ``ROLLED_BACK``, now that it is.
            RetryableError: ``PAUSED``: it is worse, and there is no way back; or the
                server is unreachable, and the next batch is judged with this one.

        Crash:
            Before the rollback's commit the version is in force and watched, and the
            next batch is judged with this one; after it the former one is.
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
        """Go back if a driver gives up for something that its pipeline does.

        Raises:
            ConfigurationError: ``ROLLED_BACK``, now that it is, or was before: the
                batch that was staged ahead may meet the fence first.
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
            why="Whoever updated asked for it by --watch.",
            fix="Start it with the former file "
            f"(tallyweir versions {self._pipeline} --show {health.former}); look into "
            "tallyweir.dead_letter for the reasons, and update again.",
        )
        raise self._rolled_back
