"""Limits reads, so that slow reads leave threads for everything else.

A request that waits for the home database or for Kafka holds one of starlette's 40
threads. Reads get only some of these threads, so a slow home delays neither acts, nor
the page itself, nor health checks.
"""

from __future__ import annotations

from anyio import CapacityLimiter
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tallyweir.services.monitor.watcher import trouble_json
from tallyweir.sinks.protocol.errors import RetryableError

#: Reads at work: less than half of starlette's threads.
AT_WORK_MAX = 16
#: Reads that wait; they hold no thread.
WAITING_MAX = 64
#: Pages that receive every look.
WATCHERS_MAX = 256
#: Seconds after which a refused read should be sent again.
RETRY_AFTER_S = 5

_READS = "/api/pipelines/"


class ReadRoom:
    """Lets some reads work and some more wait, and refuses all others at once."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(AT_WORK_MAX)

    async def __call__(
        self, request: Request, answer: RequestResponseEndpoint
    ) -> Response:
        """Answer a request, or refuse it at once if too many wait."""
        if request.method == "POST" or not request.url.path.startswith(_READS):
            return await answer(request)
        waiting = self._limiter.statistics().tasks_waiting
        if waiting >= WAITING_MAX:
            return busy_answer(
                RetryableError(
                    "MONITOR_BUSY",
                    saw=f"{waiting} reads wait already.",
                    why="Another read would only wait longer.",
                    fix="Wait; if this lasts, the home database is slow.",
                )
            )
        async with self._limiter:
            return await answer(request)


class Seats:
    """A limited number of seats for clients that stay connected.

    Attributes:
        free: Number of free seats.
    """

    def __init__(self, count: int) -> None:
        self.free = count

    def take(self) -> bool:
        """Take a seat, if one is free."""
        if not self.free:
            return False
        self.free -= 1
        return True


def busy_answer(error: RetryableError) -> Response:
    """Return an answer that says what is busy, and when to ask again."""
    return JSONResponse(
        trouble_json(error),
        status_code=503,
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
