"""Load for the ingest service: each connection sends an event after each answer.

The load runs in a process of its own and uses bare asyncio protocols, because the
service cannot have the processor time that the load uses.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import uvloop

_ACCEPTED = b"HTTP/1.1 202 "
_LENGTH = b"content-length: "
_HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class LoadRun:
    """A run in progress.

    Attributes:
        head: Head of every request, up to the value of its content length.
        measure_from: Answers before this time are the warm-up and are not counted.
        end: No request begins after this time.
        seconds: Time from each request to its answer.
        refused: Number of answers that were not 202, and of broken connections.
    """

    head: bytes
    measure_from: float
    end: float
    seconds: list[float] = field(default_factory=list)
    refused: int = 0


class LoadConnection(asyncio.Protocol):
    """One keep-alive connection.

    Args:
        run: The run that the connection belongs to.
        number: Makes its events differ from those of other connections.
        done: Resolved when the connection has ended.
    """

    def __init__(self, run: LoadRun, number: int, done: asyncio.Future[None]) -> None:
        self._run = run
        self._number = number
        self._done = done
        self._sent = 0
        self._began = 0.0
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first event."""
        # uvloop's transports do not inherit from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Count a complete answer, and send the next event."""
        self._answer += data
        end = self._answer.find(_HEAD_END)
        if end < 0:
            return
        at = self._answer.index(_LENGTH) + len(_LENGTH)
        length = int(self._answer[at : self._answer.index(b"\r", at)])
        if len(self._answer) < end + len(_HEAD_END) + length:
            return
        now = time.perf_counter()
        if not self._answer.startswith(_ACCEPTED):
            self._run.refused += 1
        elif now >= self._run.measure_from and now < self._run.end:
            self._run.seconds.append(now - self._began)
        self._answer = b""
        if now < self._run.end:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end; a broken connection counts as refused."""
        if exc is not None or time.perf_counter() < self._run.end:
            self._run.refused += 1
        if not self._done.done():
            self._done.set_result(None)

    def _send(self) -> None:
        self._sent += 1
        body = event_json(self._number, self._sent)
        self._began = time.perf_counter()
        self._transport.write(b"%s%d\r\n\r\n%s" % (self._run.head, len(body), body))


def event_json(connection: int, number: int) -> bytes:
    """Return a page view as JSON; page views differ only in their ID."""
    return (
        b'{"event_id":"bench:%06d-%012d-0000-000000","user_id":4711,'
        b'"page":"/products/17","country":"DE",'
        b'"viewed_at":"2026-11-21T10:15:00.123456Z","value":1.25}'
        % (connection, number)
    )


async def _load(host: str, port: int, run: LoadRun, connections: int) -> None:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = [
        loop.create_future() for _ in range(connections)
    ]
    for number, done in enumerate(ends):
        await loop.create_connection(
            partial(LoadConnection, run, number, done), host, port
        )
    await asyncio.gather(*ends)


def main() -> None:
    """Read the task as JSON from stdin; write the figures to stdout."""
    task = json.load(sys.stdin)
    head = (
        f"POST {task['path']} HTTP/1.1\r\nHost: ingest\r\n"
        f"Authorization: Bearer {task['key']}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    measure_from = time.perf_counter() + task["warm_up_s"]
    run = LoadRun(
        head=head, measure_from=measure_from, end=measure_from + task["seconds"]
    )
    used = time.process_time()
    uvloop.run(_load(task["host"], task["port"], run, task["connections"]))
    used = time.process_time() - used
    json.dump(
        {"seconds": run.seconds, "refused": run.refused, "cpu_s": used}, sys.stdout
    )


if __name__ == "__main__":
    main()
