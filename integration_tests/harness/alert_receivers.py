"""Real servers that are told of alerts: one of HTTP, and one that takes mail."""

from __future__ import annotations

import base64
import email
import email.policy
import json
import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Posted:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - as it came
        return json.loads(self.body)


@dataclass(kw_only=True)
class HttpReceiver:
    """What a server of HTTP has taken, and what it answers."""

    url: str
    status: int = 200
    posted: list[Posted] = field(default_factory=list)

    def ids(self) -> list[str]:
        """The IDs of notifications in the order in which they came."""
        return [one.json["id"] for one in self.posted]

    def about(self, pipeline: str) -> list[str]:
        """What was told of a pipeline."""
        found = [one.json for one in self.posted]
        return [one["about"] for one in found if one["pipeline"] == pipeline]


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """Serve in the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.posted.append(
                Posted(
                    path=self.path,
                    headers={k.lower(): v for k, v in self.headers.items()},
                    body=body,
                )
            )
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = HttpReceiver(url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@dataclass(kw_only=True)
class MailReceiver:
    """What a mail server has taken.

    Attributes:
        port: Where it listens on localhost.
        mail: What came, each only after STARTTLS and the right login.
        logins: User and password of each login.
        refuses: Whether it takes no mail for now.
    """

    port: int
    mail: list[EmailMessage] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    refuses: bool = False


@contextmanager
def mail_receiver(directory: Path) -> Iterator[MailReceiver]:
    """Take mail in the block, with a certificate for localhost in ``server.pem``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_make_certificate(directory))
    with _MailServer(("127.0.0.1", 0), _MailHandler) as server:
        server.context = context
        server.receiver = MailReceiver(port=server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.receiver
        finally:
            server.shutdown()
            thread.join()


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    context: ssl.SSLContext
    receiver: MailReceiver


class _MailHandler(socketserver.StreamRequestHandler):
    server: _MailServer

    def handle(self) -> None:
        # A client that does not trust us goes in the middle of a handshake.
        with suppress(OSError):
            self._say("220 sink")
            while line := self.rfile.readline().decode().strip():
                word, _, rest = line.partition(" ")
                if not self._answer(word.upper(), rest):
                    return

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.connection.close()

    def _answer(self, word: str, rest: str) -> bool:
        receiver = self.server.receiver
        match word:
            case "EHLO":
                self._say("250-sink", "250-STARTTLS", "250 AUTH PLAIN")
            case "STARTTLS":
                self._say("220 go ahead")
                self._encrypt()
            case "AUTH":
                given = base64.b64decode(rest.rsplit(maxsplit=1)[-1])
                _, user, password = given.split(b"\0")
                receiver.logins.append((user.decode(), password.decode()))
                self._say("235 welcome")
            case "MAIL" if not isinstance(self.connection, ssl.SSLSocket):
                self._say("530 encrypt first")
            case "DATA" if receiver.refuses:
                self._say("451 not now")
            case "DATA":
                self._say("354 go ahead")
                self._take()
                self._say("250 taken")
            case "QUIT":
                self._say("221 bye")
                return False
            case _:
                self._say("250 fine")
        return True

    def _encrypt(self) -> None:
        context = self.server.context
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)

    def _take(self) -> None:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line)
        policy = email.policy.default
        self.server.receiver.mail.append(
            email.message_from_bytes(b"".join(lines), policy=policy)
        )

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


def _make_certificate(directory: Path) -> Path:
    openssl = shutil.which("openssl")
    assert openssl is not None
    file = directory / "server.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(directory / "key.pem"), "-out", str(file)),
        ],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + (directory / "key.pem").read_bytes())
    return file
