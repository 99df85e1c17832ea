"""Takes what is posted to it, and prints each body on a line of its own."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

_PORT = 8080


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Print the body; the answer says that it was taken."""
        body = self.rfile.read(int(self.headers["content-length"]))
        sys.stdout.write(f"{body.decode()}\n")
        sys.stdout.flush()
        self.send_response(204)
        self.end_headers()


HTTPServer(("", _PORT), _Receiver).serve_forever()
