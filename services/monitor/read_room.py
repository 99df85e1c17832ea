"""Room for reads, so that slow ones take no threads from anything else.

Whatever waits for the home database or for Kafka waits in a thread, of which starlette
has 40. Reads get a part of them only, so a home that is slow keeps neither acts, nor
the page itself, nor whoever asks whether the process lives.
"""

from __future__ import annotations

from anyio import CapacityLimiter
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.monitor.watcher import trouble_json
from sinks.protocol.errors import RetryableError

#: Less than half of starlette's threads.
AT_WORK_MAX = 16
#: These hold no thread.
WAITING_MAX = 64
#: Pages that are told of every look.
WATCHERS_MAX = 256
#: After which a read that was refused may be answered.
RETRY_AFTER_S = 5

_READS = "/api/pipelines/"


class ReadRoom:
    """Lets some reads work, some more wait, and refuses at once what comes then."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(AT_WORK_MAX)

    async def __call__(
        self, request: Request, answer: RequestResponseEndpoint
    ) -> Response:
        """Answer a request, or say at once that too many wait."""
        if request.method == "POST" or not request.url.path.startswith(_READS):
            return await answer(request)
        waiting = self._limiter.statistics().tasks_waiting
        if waiting >= WAITING_MAX:
            return busy_answer(
                RetryableError(
                    "MONITOR_BUSY",
                    saw=f"{waiting} reads wait already.",
                    why="One more would only wait longer.",
                    fix="Wait; if it stays so, the home database is slow.",
                )
            )
        async with self._limiter:
            return await answer(request)


class Seats:
    """Places for those who stay.

    Attributes:
        free: How many are left.
    """

    def __init__(self, count: int) -> None:
        self.free = count

    def take(self) -> bool:
        """Take one, if there is one."""
        if not self.free:
            return False
        self.free -= 1
        return True


def busy_answer(error: RetryableError) -> Response:
    """Say what cannot be read for now, and when to ask again."""
    return JSONResponse(
        trouble_json(error),
        status_code=503,
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
