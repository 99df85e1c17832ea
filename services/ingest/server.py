"""Run the ingest process: routes, tasks next to them, an end that loses no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import Receive, Scope, Send

from tallyweir.services.ingest.api_keys import KeyFile
from tallyweir.services.ingest.event_endpoint import (
    EVENTS_PATH,
    EventEndpoint,
    refusal_answer,
)
from tallyweir.services.ingest.kafka_sender import DELIVERY_TIMEOUT_S, KafkaSender
from tallyweir.services.ingest.metrics import IngestMetrics
from tallyweir.services.ingest.openapi import describe_service, render_page
from tallyweir.services.ingest.request import BODY_TIMEOUT_S
from tallyweir.services.ingest.served_topics import ServedTopic
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.process.hashed_secrets import utc_now
from tallyweir.services.process.http_server import DrainingServer, listen
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.protocol.errors import ConfigurationError, FatalError

#: The longest time that a request in flight can take, and a little more.
DRAIN_TIMEOUT_S = round(BODY_TIMEOUT_S + DELIVERY_TIMEOUT_S) + 2


def serve(  # noqa: PLR0913 (keyword-only; the settings of a service)
    *,
    bootstrap: str,
    served: Mapping[str, ServedTopic],
    keys: KeyFile,
    host: str,
    port: int,
    public_names: Iterable[str],
) -> None:
    """Serve until SIGTERM or Ctrl-C, then answer what is in flight and return.

    Args:
        bootstrap: The broker's address.
        served: The served topics by name.
        keys: The keys of the producers that may send.
        host: The address to listen on.
        port: The port; 0 takes any free port, and the log names it.
        public_names: The service's names in addition to ``host`` and loopback's names.

    Raises:
        ConfigurationError: The address or a name cannot be used, or a topic is
            missing.
        RetryableError: The broker does not answer.
        FatalError: The Kafka client can never send again; restart the service.
    """
    for name in served:
        ensure_topic(bootstrap, name)
    with listen(host, port) as listener:
        fatal: list[str] = []

        def end(error: str) -> None:
            fatal.append(error)
            server.should_exit = True

        server = DrainingServer(
            IngestApplication(
                bootstrap=bootstrap, served=served, keys=keys, on_fatal=end
            ),
            names=(host, *public_names),
            drain_timeout_s=DRAIN_TIMEOUT_S,
        )
        log = structlog.get_logger()
        address, chosen = listener.getsockname()[:2]
        log.info("ingest listens", host=address, port=chosen, topics=sorted(served))
        server.run(sockets=[listener])
        log.info("ingest stopped")
    if fatal:
        raise FatalError(
            "KAFKA_CLIENT_BROKEN",
            saw=f"The Kafka client gave up: {fatal[0]}.",
            why="The client no longer knows which events the broker has.",
            fix="Start the service again; producers can safely repeat unanswered "
            "events.",
        )


KEYS_EVERY_S = 1.0
READY_EVERY_S = 3.0
BROKER_TIMEOUT_S = 2.0

_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}


class IngestApplication:
    """The service as an ASGI application.

    Args:
        bootstrap: The broker's address.
        served: The served topics by name.
        keys: The keys of the producers that may send.
        on_fatal: Called when the Kafka client can never send again.
    """

    def __init__(
        self,
        *,
        bootstrap: str,
        served: Mapping[str, ServedTopic],
        keys: KeyFile,
        on_fatal: Callable[[str], None],
    ) -> None:
        self.metrics = IngestMetrics()
        self.is_ready = False
        self._bootstrap = bootstrap
        self._served = served
        self._keys = keys
        self._on_fatal = on_fatal
        self._log = structlog.get_logger()
        self._events: EventEndpoint | None = None
        self._is_ending = asyncio.Event()
        self._pages = FastAPI(
            openapi_url=None, docs_url=None, redoc_url=None, lifespan=self._live
        )
        self._add_pages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or handle the server's start and end."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
        elif scope["path"].startswith(EVENTS_PATH):
            assert self._events is not None, "requests come after the start"
            await self._events(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    @asynccontextmanager
    async def _live(self, _app: FastAPI) -> AsyncIterator[None]:
        sender = KafkaSender(
            self._bootstrap,
            loop=asyncio.get_running_loop(),
            on_fatal=self._on_fatal,
        )
        self._events = EventEndpoint(
            served=self._served, keys=self._keys, sender=sender, metrics=self.metrics
        )
        in_flight = self._events.in_flight
        self.metrics.watch(
            lambda: in_flight.events.taken, lambda: in_flight.bytes.taken
        )
        self.metrics.key_reload_timestamp.set(time.time())
        beside = [
            asyncio.create_task(self._watch_keys()),
            asyncio.create_task(self._watch_broker(sender)),
        ]
        yield
        self._is_ending.set()
        await asyncio.gather(*beside)
        sender.stop_polling()
        left = await asyncio.to_thread(sender.flush)
        self._log.info("drained", events_without_report=left)

    async def _watch_keys(self) -> None:
        while not await self._ends_within(KEYS_EVERY_S):
            try:
                if self._keys.reload_if_changed():
                    self.metrics.key_reload_timestamp.set(time.time())
                    self._log.info("keys read", keys=len(self._keys.ring.keys))
            except ConfigurationError as error:
                self.metrics.key_reload_failures.inc()
                self._log.error(
                    "keys not read", error_code=error.code, saw=error.saw, fix=error.fix
                )

    async def _watch_broker(self, sender: KafkaSender) -> None:
        topics = list(self._served)
        while not self._is_ending.is_set():
            is_ready = await asyncio.to_thread(
                sender.knows_topics, topics, timeout_s=BROKER_TIMEOUT_S
            )
            if is_ready != self.is_ready:
                self._log.info("ready" if is_ready else "not ready", topics=topics)
            self.is_ready = is_ready
            self.metrics.ready.set(is_ready)
            await self._ends_within(READY_EVERY_S)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._is_ending.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _add_pages(self) -> None:
        pages = self._pages

        @pages.get("/livez")
        async def livez() -> Response:
            return JSONResponse({"status": "ok"})

        @pages.get("/readyz")
        async def readyz() -> Response:
            if self.is_ready:
                return JSONResponse({"status": "ok"})
            return JSONResponse(
                {"status": "the broker does not answer, or lacks a topic"}, 503
            )

        @pages.get("/metrics")
        async def metrics() -> Response:
            text = generate_latest(self.metrics.registry)
            return Response(text, media_type=CONTENT_TYPE_LATEST)

        @pages.get("/openapi.json")
        async def openapi(request: Request) -> Response:
            return JSONResponse(self._describe(request))

        @pages.get("/docs")
        async def docs() -> Response:
            page = render_page(describe_service([]))
            return HTMLResponse(page, headers=_PAGE_HEADERS)

        @pages.exception_handler(404)
        @pages.exception_handler(405)
        async def refuse(_request: Request, _error: Exception) -> Response:
            answer = refusal_answer(_path_unknown())
            return Response(
                answer.body, answer.status, media_type=answer.content_type.decode()
            )

    def _describe(self, request: Request) -> dict[str, object]:
        """The OpenAPI document, with the topics of the request's key if it has one."""
        authorization = request.headers.get("authorization", "").encode("latin-1")
        try:
            key = self._keys.ring.authenticate(authorization, utc_now())
        except RefusedError:
            return describe_service([])
        allowed = [topic for name, topic in self._served.items() if name in key.topics]
        return describe_service(allowed, key.id_prefix)


def _path_unknown() -> RefusedError:
    return RefusedError(
        "PATH_UNKNOWN",
        status=404,
        saw="The service has no such path and method.",
        why="Events go to POST /v1/events/TOPIC.",
        fix="Correct the path; /docs lists all paths.",
    )
