"""How many may watch is bounded, and a seat is free again when somebody leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from tallyweir.services.monitor.application import _Watching
from tallyweir.services.monitor.read_room import Seats

Message = MutableMapping[str, Any]
_SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


def test_one_too_many_is_told_to_come_back() -> None:
    """Those who watch go on watching."""

    async def scenario() -> list[int]:
        seats = Seats(2)
        leave = asyncio.Event()
        began = asyncio.Semaphore(0)
        statuses: list[int] = []

        async def events() -> AsyncIterator[str]:
            began.release()
            yield "data: 1\n\n"
            await leave.wait()

        async def receive() -> Message:
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def watch() -> None:
            await _Watching(events(), seats)(_SCOPE, receive, send)

        watching = [asyncio.create_task(watch()) for _ in range(2)]
        for _ in watching:
            await began.acquire()
        await watch()
        leave.set()
        await asyncio.gather(*watching)
        assert seats.free == 2
        await watch()
        return statuses

    assert asyncio.run(scenario()) == [200, 200, 503, 200]
