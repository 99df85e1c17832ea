"""What is left of a fenced driver: alive, never ready, and it says why."""  # noqa: INP001 - a script

from __future__ import annotations

import os
import signal
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ALIVE = "/livez"
_WHY = b"fenced: a newer driver of this pipeline works; delete this pod to take over\n"


class _Answers(BaseHTTPRequestHandler):
    timeout = 10.0

    def do_GET(self) -> None:
        alive = self.path == _ALIVE
        self.send_response(
            HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE,
        )
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(_WHY)))
        self.end_headers()
        self.wfile.write(_WHY)

    def log_message(self, *_: object) -> None:
        """Probes are no news."""


def main() -> None:
    """Answer probes until SIGTERM."""
    host = os.environ.get("TALLYWEIR_METRICS_HOST", "127.0.0.1")
    port = int(os.environ["TALLYWEIR_METRICS_PORT"])
    server = ThreadingHTTPServer((host, port), _Answers)

    def stop(_signal: int, _frame: object) -> None:
        # It waits for the loop, which this thread is in.
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.stderr.write(_WHY.decode())
    server.serve_forever()


if __name__ == "__main__":
    main()
