"""Which path is answered by what; what needs a token is in ``guarded_paths``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
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

from services.bottleneck_json import bottleneck_json
from services.endpoints import Endpoints
from services.monitor.chart_paths import ChartPaths
from services.monitor.explained_event import NAME_MAX, told_without_payloads
from services.monitor.gauge_keeper import GaugeKeeper
from services.monitor.guard import Guard
from services.monitor.guarded_paths import GuardedPaths
from services.monitor.home_reader import HomeReader
from services.monitor.look_metrics import LookMetrics
from services.monitor.profile_paths import ProfilePaths
from services.monitor.steering_paths import SteeringPaths
from services.monitor.watcher import Look, Watcher, trouble_json
from sinks.postgres import audit
from sinks.postgres.driver_log import read_driver_log
from sinks.protocol.errors import ConfigurationError, TallyweirError

PAGE = Path(__file__).with_name("page")

#: The page gets nothing from elsewhere, and nobody may frame it.
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
_JSON = "application/json"
_NOT_FOUND = {
    *("PIPELINE_UNKNOWN", "PIPELINE_DISCARDED"),
    *("FLAME_GRAPH_UNKNOWN", "LETTER_UNKNOWN"),
}


class MonitorApplication:
    """The monitor as an ASGI application.

    Args:
        home_dsn: Of the home database.
        bootstrap: Of the broker.
        acts_dsn: Of the home database, under the login that acts.
        tokens: The tokens file; None if nobody may do anything but read.
        contracts: The folder of contracts that are files beside pipeline files.

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
        self.pages = FastAPI(
            openapi_url=None, docs_url=None, redoc_url=None, lifespan=self._live
        )
        self.pages.middleware("http")(_with_headers)
        self.pages.exception_handler(TallyweirError)(_answer_error)
        self._add_readings()
        self._add_tables_and_logs()
        guard = Guard(tokens)
        GuardedPaths(
            self._home,
            acts_dsn=acts_dsn,
            bootstrap=bootstrap,
            guard=guard,
            contracts=contracts,
        ).add_to(self.pages)
        places = Endpoints(kafka_bootstrap=bootstrap, home_dsn=home_dsn)
        SteeringPaths(self._home, places, guard).add_to(self.pages)
        self._metrics.add_to(self.pages)
        ProfilePaths(self._home).add_to(self.pages)
        ChartPaths(self._home).add_to(self.pages)
        self.pages.get("/")(lambda: FileResponse(PAGE / "index.html"))
        self.pages.mount("/page", StaticFiles(directory=PAGE), name="page")

    def end(self) -> None:
        """Let go of everybody who watches, so that the server can end."""
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
            return StreamingResponse(events, media_type="text/event-stream")

        @self.pages.get("/api/pipelines/{name}/graph")
        def graph(
            name: str, newest: Annotated[int, Query(ge=1, le=_BATCHES_MAX)] = 100
        ) -> Response:
            return self._read(lambda c: audit.read_job_graph(c, name, newest=newest))

        @self.pages.get("/api/pipelines/{name}/bottleneck")
        def bottleneck(
            name: str, lag: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None
        ) -> Response:
            return self._read(lambda c: _bottleneck_of(c, name, lag))

        @self.pages.get("/api/pipelines/{name}/batches")
        def batches(
            name: str,
            before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
            limit: Annotated[int, Query(ge=1, le=_PAGE_ROWS_MAX)] = 50,
        ) -> Response:
            return self._read(
                lambda c: audit.read_batches(c, name, before=before, limit=limit)
            )

        @self.pages.get("/api/pipelines/{name}/history")
        def history(
            name: str,
            slot_s: Annotated[int, Query(ge=1, le=_SLOT_MAX_S)] = 10,
            slots: Annotated[int, Query(ge=1, le=_SLOTS_MAX)] = 180,
        ) -> Response:
            return self._read(
                lambda c: audit.read_history(c, name, slot_s=slot_s, slots=slots)
            )

        @self.pages.get("/api/pipelines/{name}/dead-letters")
        def dead_letter_groups(name: str) -> Response:
            return self._read(lambda c: audit.group_dead_letters(c, name))

        @self.pages.get("/api/pipelines/{name}/dead-letters/{reason}")
        def dead_letters(
            name: str,
            reason: str,
            skipped: Annotated[int, Query(ge=0, le=2**31)] = 0,
            limit: Annotated[int, Query(ge=1, le=_PAGE_ROWS_MAX)] = 50,
        ) -> Response:
            return self._read(
                lambda c: audit.read_dead_letters(
                    c, name, reason, skipped=skipped, limit=limit
                )
            )

        @self.pages.get("/api/pipelines/{name}/why")
        def why(
            name: str,
            event_id: Annotated[str, Query(min_length=1, max_length=NAME_MAX)],
        ) -> Response:
            return self._read(lambda c: told_without_payloads(c, name, event_id))

    def _add_tables_and_logs(self) -> None:
        @self.pages.get("/api/pipelines/{name}/tables")
        def tables(
            name: str, newest: Annotated[int, Query(ge=1, le=_BATCHES_MAX)] = 1_000
        ) -> Response:
            return self._read(
                lambda c: audit.read_output_tables(c, name, newest=newest)
            )

        @self.pages.get("/api/pipelines/{name}/logs")
        def logs(
            name: str,
            batch: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
            before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
            limit: Annotated[int, Query(ge=1, le=_PAGE_ROWS_MAX)] = 100,
        ) -> Response:
            return self._read(
                lambda c: read_driver_log(
                    c, name, sequence=batch, before=before, limit=limit
                )
            )

    def _read(self, reading: Callable[[Connection[TupleRow]], object]) -> Response:
        return Response(to_json(self._home.read(reading)), media_type=_JSON)


def _bottleneck_of(
    connection: Connection[TupleRow], name: str, lag: int | None
) -> dict[str, object] | None:
    found = audit.read_bottleneck(connection, name, lag=lag)
    return bottleneck_json(found)


def _event(look: Look) -> str:
    """Write a look as a server-sent event, which ends with an empty line."""
    return f"id: {look.number}\ndata: {to_json(look).decode()}\n\n"


async def _with_headers(request: Request, answer: RequestResponseEndpoint) -> Response:
    response = await answer(request)
    for name, value in _HEADERS.items():
        # A path that allows even less says so itself.
        response.headers.setdefault(name, value)
    return response


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TallyweirError)
    status = 404 if error.code in _NOT_FOUND else 503
    if request.method == "POST" and isinstance(error, ConfigurationError):
        # An act that is not to be done as things stand.
        status = 409
    return JSONResponse(trouble_json(error), status_code=status)
