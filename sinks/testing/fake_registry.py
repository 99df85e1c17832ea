"""A schema registry that misbehaves: it gives the answers that a test has prepared."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""A status and a body: text as it is, or anything else as JSON."""


class FakeRegistry:
    """Answers by the path of a request; see ``fake_registry``.

    Attributes:
        answers: The answer to each path; any other path has no schema.
        asked: The paths that were asked for, in order.
        logins: The header ``Authorization`` of each request.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []

    def answer(self, path: str) -> Answer:
        """Return the answer to a path."""
        self.asked.append(path)
        nothing = 404, {"error_code": 40403, "message": "Schema not found"}
        return self.answers.get(path, nothing)


@contextmanager
def fake_registry(
    context: ssl.SSLContext | None = None,
) -> Iterator[FakeRegistry]:
    """Serve a registry without schemas until the block ends.

    Args:
        context: Whom it lets in by TLS; None to speak plain HTTP.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.logins.append(self.headers.get("Authorization"))
            status, body = registry.answer(self.path.partition("?")[0])
            text = body if isinstance(body, str) else json.dumps(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Write nothing: a test shows what was asked."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = FakeRegistry(server.server_port)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            registry.url = f"https://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
