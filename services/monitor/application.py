"""Which code answers which path.

Charts and profiles are here too. ``guarded_paths`` has the paths that need a token,
``quoting_paths`` those whose answers may quote records, ``steering_paths`` those about
acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from psycopg import Connection
from psycopg.rows import TupleRow
from pydantic_core import to_json
from starlette.middleware.base import RequestResponseEndpoint
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tallyweir.services.monitor.gauge_keeper import GaugeKeeper
from tallyweir.services.monitor.guard import Guard
from tallyweir.services.monitor.guarded_paths import GuardedPaths
from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.services.monitor.look_metrics import LookMetrics
from tallyweir.services.monitor.quoting_paths import add_quoting_paths
from tallyweir.services.monitor.read_room import (
    WATCHERS_MAX,
    ReadRoom,
    Seats,
    busy_answer,
)
from tallyweir.services.monitor.steering_paths import add_steering_paths
from tallyweir.services.monitor.watcher import Look, Watcher, trouble_json
from tallyweir.services.operate.pipeline_json import bottleneck_json, gauges_json
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.records.pipeline_gauges import read_gauges
from tallyweir.sinks.postgres.records.profiles import list_profiles, read_flame_graph
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

PAGE = Path(__file__).with_name("page")

#: The page loads nothing from elsewhere, and no other page may frame it.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_BATCHES_MAX = 10_000
_PAGE_ROWS_MAX = 500
_SLOTS_MAX = 1_000
_SLOT_MAX_S = 86_400
_NOT_FOUND = {
    *("PIPELINE_UNKNOWN", "PIPELINE_DISCARDED"),
    *("FLAME_GRAPH_UNKNOWN", "LETTER_UNKNOWN"),
}


class MonitorApplication:
    """The monitor as an ASGI application.

    Args:
        home_dsn: Connection string of the home database.
        bootstrap: Address of the broker.
        acts_dsn: Connection string of the home database, for the login that does acts.
        tokens: The tokens file; None if the monitor only reads.
        contracts: The folder of contracts that are files next to pipeline files.

    Raises:
        ConfigurationError: The tokens file cannot be read, or is not valid.
    """

    def __init__(
        self,
        *,
        home_dsn: str,
        bootstrap: str,
        acts_dsn: str,
        tokens: Path | None = None,
        contracts: Path | None = None,
    ) -> None:
        self._home = HomeReader(home_dsn)
        self._bootstrap = bootstrap
        self._end = asyncio.Event()
        self._watcher: Watcher | None = None
        self._metrics = LookMetrics()
        self._room = ReadRoom()
        self._seats = Seats(WATCHERS_MAX)
        self.pages = FastAPI(
            openapi_url=None, docs_url=None, redoc_url=None, lifespan=self._live
        )
        self.pages.middleware("http")(self._answer)
        self.pages.exception_handler(TallyweirError)(_answer_error)
        self._add_readings()
        guard = Guard(tokens)
        GuardedPaths(
            self._home,
            acts_dsn=acts_dsn,
            bootstrap=bootstrap,
            guard=guard,
            contracts=contracts,
        ).add_to(self.pages)
        add_quoting_paths(self.pages, self._home, guard)
        add_steering_paths(self.pages, self._home, bootstrap, guard)
        self._metrics.add_to(self.pages)
        _add_profiles(self.pages, self._home)
        _add_charts(self.pages, self._home)
        self.pages.get("/")(lambda: FileResponse(PAGE / "index.html"))
        self.pages.mount("/page", StaticFiles(directory=PAGE), name="page")

    def end(self) -> None:
        """Disconnect all watchers, so that the server can end."""
        self._end.set()

    @asynccontextmanager
    async def _live(self, _app: FastAPI) -> AsyncIterator[None]:
        keeper = GaugeKeeper(self._home, self._bootstrap)
        self._watcher = Watcher(
            self._home, self._bootstrap, self._metrics.note, lambda: keeper.found
        )
        working = asyncio.gather(self._watcher.run(self._end), keeper.run(self._end))
        yield
        self._end.set()
        await working
        self._home.close()

    def _add_readings(self) -> None:
        @self.pages.get("/api/looks")
        async def looks() -> StreamingResponse:
            assert self._watcher is not None, "requests come after the start"
            events = (_event(look) async for look in self._watcher.looks(self._end))
            return _Watching(events, self._seats)

        @self.pages.get("/api/pipelines/{name}/graph")
        def graph(
            name: str, newest: Annotated[int, Query(ge=1, le=_BATCHES_MAX)] = 100
        ) -> Response:
            return self._home.answer(
                lambda c: audit.read_job_graph(c, name, newest=newest)
            )

        @self.pages.get("/api/pipelines/{name}/bottleneck")
        def bottleneck(
            name: str, lag: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None
        ) -> Response:
            return self._home.answer(lambda c: _bottleneck_of(c, name, lag))

        @self.pages.get("/api/pipelines/{name}/batches")
        def batches(
            name: str,
            before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
            limit: Annotated[int, Query(ge=1, le=_PAGE_ROWS_MAX)] = 50,
        ) -> Response:
            return self._home.answer(
                lambda c: audit.read_batches(c, name, before=before, limit=limit)
            )

        @self.pages.get("/api/pipelines/{name}/history")
        def history(
            name: str,
            slot_s: Annotated[int, Query(ge=1, le=_SLOT_MAX_S)] = 10,
            slots: Annotated[int, Query(ge=1, le=_SLOTS_MAX)] = 180,
        ) -> Response:
            return self._home.answer(
                lambda c: audit.read_history(c, name, slot_s=slot_s, slots=slots)
            )

        @self.pages.get("/api/pipelines/{name}/tables")
        def tables(
            name: str, newest: Annotated[int, Query(ge=1, le=_BATCHES_MAX)] = 1_000
        ) -> Response:
            return self._home.answer(
                lambda c: audit.read_output_tables(c, name, newest=newest)
            )

    async def _answer(
        self, request: Request, answer: RequestResponseEndpoint
    ) -> Response:
        response = await self._room(request, answer)
        for name, value in _HEADERS.items():
            # A path that is stricter sets its own header.
            response.headers.setdefault(name, value)
        return response


class _Watching(StreamingResponse):
    """Streams to one watcher, if a seat is free."""

    def __init__(self, events: AsyncIterator[str], seats: Seats) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._seats = seats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep the seat until the client has gone."""
        if not self._seats.take():
            await busy_answer(
                RetryableError(
                    "MONITOR_BUSY",
                    saw=f"{WATCHERS_MAX} browsers watch already.",
                    why="Each of them holds a connection.",
                    fix="Close pages that are not in use.",
                )
            )(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seats.free += 1


def _bottleneck_of(
    connection: Connection[TupleRow], name: str, lag: int | None
) -> dict[str, object] | None:
    found = audit.read_bottleneck(connection, name, lag=lag)
    return bottleneck_json(found)


def _event(look: Look) -> str:
    """Write a look as a server-sent event, which ends with an empty line."""
    return f"id: {look.number}\ndata: {to_json(look).decode()}\n\n"


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TallyweirError)
    if isinstance(error, RetryableError):
        return busy_answer(error)
    status = 404 if error.code in _NOT_FOUND else 503
    if request.method == "POST" and isinstance(error, ConfigurationError):
        # The state of the pipeline does not allow the act.
        status = 409
    return JSONResponse(trouble_json(error), status_code=status)


def _add_charts(pages: FastAPI, home: HomeReader) -> None:
    @pages.get("/api/pipelines/{name}/charts")
    def charts(
        name: str,
        slot_s: Annotated[int, Query(ge=1, le=_SLOT_MAX_S)] = 10,
        slots: Annotated[int, Query(ge=1, le=_SLOTS_MAX)] = 180,
    ) -> Response:
        def read(connection: Connection[TupleRow]) -> dict[str, object]:
            return {
                "slots": audit.read_charts(
                    connection, name, slot_s=slot_s, slots=slots
                ),
                "gauges": [
                    gauges_json(one)
                    for one in read_gauges(connection, name, seconds=slot_s * slots)
                ],
            }

        return home.answer(read)


#: Nothing in a flame graph can run or load anything.
_SANDBOX = {"content-security-policy": "default-src 'none'; sandbox"}


def _add_profiles(pages: FastAPI, home: HomeReader) -> None:
    @pages.get("/api/pipelines/{name}/profiles")
    def profiles(name: str) -> Response:
        return home.answer(lambda c: list_profiles(c, name))

    @pages.get("/api/pipelines/{name}/profiles/{profile_id}.svg")
    def flame_graph(name: str, profile_id: int) -> Response:
        found = home.read(lambda c: read_flame_graph(c, name, profile_id))
        return Response(found, media_type="image/svg+xml", headers=_SANDBOX)
