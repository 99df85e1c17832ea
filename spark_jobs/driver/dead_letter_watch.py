"""Watch whether a pipeline has more dead letters than its limit allows."""

from __future__ import annotations

from collections import deque

from tallyweir.schemas.pipeline.events.validation import DeadLetterLimit
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.steering import pause
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_NAME = "tallyweir dead-letter watch"


class DeadLetterWatch:
    """Checks a driver's newest batches: as few as hold the limit's number of records.

    Args:
        pipeline: The pipeline's name.
        limit: The limit; None if there is none.
    """

    def __init__(self, pipeline: str, limit: DeadLetterLimit | None) -> None:
        self._pipeline = pipeline
        self._limit = limit
        #: The numbers of records read and of dead letters of each batch.
        self._batches: deque[tuple[int, int]] = deque()
        self._read = self._dead = 0

    def check_batch(self, home_dsn: str, *, read: int, dead: int) -> None:
        """Pause the pipeline if this published batch takes it over the limit.

        Raises:
            RetryableError: ``PAUSED``, if the driver has just paused the pipeline.
                Another code if the pause failed; the next check includes this batch.

        Crash:
            Before the pause commits, nothing has changed; afterwards the pipeline is
            paused.
        """
        too_many = self.note_batch(read=read, dead=dead)
        if too_many is None:
            return
        with connect(home_dsn, application_name=_NAME) as home:
            try:
                pause(home, self._pipeline, reason=too_many)
            except ConfigurationError as error:
                if error.code != "PAUSED_ALREADY":
                    raise
        # The operator who resumes has dealt with it, so count from zero again.
        self._batches.clear()
        self._read = self._dead = 0
        raise RetryableError(
            "PAUSED",
            saw=f"The driver has paused the pipeline: {too_many}.",
            why="Going on could leave the whole topic among the dead letters.",
            fix="Look into tallyweir.dead_letter for the reasons, and see to them; "
            f"then tallyweir resume {self._pipeline}.",
        )

    def note_batch(self, *, read: int, dead: int) -> str | None:
        """Count a batch.

        Returns:
            Why the pipeline must not go on; None if it may.
        """
        if self._limit is None:
            return None
        self._batches.append((read, dead))
        self._read += read
        self._dead += dead
        while self._read - self._batches[0][0] >= self._limit.records:
            oldest_read, oldest_dead = self._batches.popleft()
            self._read -= oldest_read
            self._dead -= oldest_dead
        if self._read < self._limit.records:
            return None
        if self._dead <= self._limit.share * self._read:
            return None
        return (
            f"{self._dead:,} of the last {self._read:,} records are dead letters "
            f"({self._dead / self._read:.1%}), and dead_letter_limit allows "
            f"{self._limit.share:.1%}"
        )
