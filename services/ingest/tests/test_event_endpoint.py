"""Answers say what is in Kafka, and nothing is read for whom it is not meant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tallyweir.services.ingest.api_keys import API_KEYS, KeyFile, make_key
from tallyweir.services.ingest.event_endpoint import EventEndpoint
from tallyweir.services.ingest.kafka_sender import Delivery, KafkaSender
from tallyweir.services.ingest.metrics import IngestMetrics
from tallyweir.services.ingest.request import (
    BODY_BYTES_MAX,
    BYTES_IN_FLIGHT_MAX,
    EVENTS_IN_FLIGHT_MAX,
    REQUEST_BYTES,
    Room,
    read_body,
)
from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.ingest.tests.served import BY_FIELD, page_view
from tallyweir.services.process.hashed_secrets import add_secret
from tallyweir.services.process.refusals import RefusedError

UNKNOWN = Delivery(-1, -1, "_MSG_TIMED_OUT", is_unknown=True)
TOO_LARGE = Delivery(-1, -1, "MSG_SIZE_TOO_LARGE")
Message = MutableMapping[str, Any]
Give = Callable[[], Awaitable[Message]]


class FakeSender:
    """Gives each event the delivery that its ID is told to get, else a place."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.told: dict[str, Delivery] = {}
        self.holds_back = False
        self.was_asked = asyncio.Event()

    def send(
        self, topic: str, events: Sequence[NamedEvent]
    ) -> asyncio.Future[list[Delivery]]:
        """As the real one."""
        assert topic == "views"
        answer: asyncio.Future[list[Delivery]] = (
            asyncio.get_running_loop().create_future()
        )
        first = len(self.sent)
        self.was_asked.set()
        self.sent += [event.event_id for event in events]
        if not self.holds_back:
            answer.set_result(
                [
                    self.told.get(event.event_id, Delivery(0, first + number))
                    for number, event in enumerate(events)
                ]
            )
        return answer


class World:
    """An endpoint, a producer's key for the topic and for one that is not served."""

    def __init__(self, directory: Path) -> None:
        key, self.text = make_key(
            producer="shop",
            topics=["views", "unserved"],
            id_prefix="shop:",
            not_after=None,
        )
        add_secret(directory / "keys.json", API_KEYS, key)
        self.sender = FakeSender()
        self.endpoint = EventEndpoint(
            served={"views": BY_FIELD},
            keys=KeyFile(directory / "keys.json"),
            sender=cast(KafkaSender, self.sender),
            metrics=IngestMetrics(),
        )

    def ask(
        self,
        body: object,
        *,
        path: str = "views",
        receive: Give | None = None,
        **headers: str,
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body of the answer."""
        return asyncio.run(self.answer(body, path=path, receive=receive, **headers))

    async def answer(
        self,
        body: object,
        *,
        path: str = "views",
        receive: Give | None = None,
        **headers: str,
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        """As ``ask``, on a running loop."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        listed = {
            "authorization": f"Bearer {self.text}",
            "content-type": "application/json",
            "content-length": str(len(raw)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        sent: list[Message] = []

        async def give() -> Message:
            return {"type": "http.request", "body": raw, "more_body": False}

        async def take(message: Message) -> None:
            sent.append(message)

        scope = {
            "method": "POST",
            "path": f"/v1/events/{path}",
            "headers": [
                (name.encode(), value.encode("latin-1"))
                for name, value in listed.items()
                if value
            ],
        }
        await self.endpoint(scope, receive or give, take)
        start, end = sent
        shown = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], shown, json.loads(end["body"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A fresh one."""
    return World(tmp_path)


async def _never() -> Message:
    raise AssertionError("the body was asked for")


def statuses(answer: dict[str, Any]) -> list[int]:
    """Of the entries of an answer."""
    return [entry["status"] for entry in answer["events"]]


def test_an_accepted_event_is_answered_with_its_place(world: World) -> None:
    """The only 202 there is."""
    status, _, answer = world.ask(page_view())
    assert status == 202
    assert answer["events"] == [
        {"status": 202, "id": "shop:1", "topic": "views", "partition": 0, "offset": 0}
    ]


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"authorization": "Bearer x"}, "views", 401),
        ({"authorization": "Bearer x"}, "nowhere", 401),
        ({}, "nowhere", 403),
        ({}, "views/more", 403),
        ({}, "", 403),
        ({}, "unserved", 404),
        ({"content_type": "text/plain"}, "views", 415),
        ({"content_encoding": "gzip"}, "views", 415),
        ({"content_length": str(BODY_BYTES_MAX + 1)}, "views", 413),
    ],
)
def test_who_is_refused_is_refused_before_the_body(
    world: World, headers: dict[str, str], path: str, status: int
) -> None:
    """Nothing is read, and nothing is sent."""
    found, _, answer = world.ask(b"", path=path, receive=_never, **headers)
    assert (found, answer["status"]) == (status, status)
    assert world.sender.sent == []


def test_a_refusal_tells_no_topic_that_exists_from_one_that_does_not(
    tmp_path: Path,
) -> None:
    """To a key that is for neither."""
    world = World(tmp_path)
    key, world.text = make_key(
        producer="till", topics=["other"], id_prefix="till:", not_after=None
    )
    add_secret(tmp_path / "keys.json", API_KEYS, key)
    assert world.endpoint._keys.reload_if_changed()
    assert world.ask(b"", path="views") == world.ask(b"", path="nowhere")
    assert world.ask(b"", path="views")[0] == 403


def test_a_refusal_says_what_was_seen_why_and_the_fix(world: World) -> None:
    """As a problem document."""
    status, headers, answer = world.ask(page_view("till:1"))
    assert (status, headers["content-type"]) == (403, "application/problem+json")
    assert answer["code"] == "ID_OUT_OF_SCOPE"
    assert answer["title"] == "Forbidden"
    assert all(answer[part] for part in ("saw", "why", "fix", "detail"))


def test_a_wrong_key_is_challenged(world: World) -> None:
    """As HTTP asks for."""
    _, headers, _ = world.ask(b"", authorization="Bearer x")
    assert headers["www-authenticate"].startswith("Bearer")


def test_an_unknown_outcome_asks_for_a_repeat(world: World) -> None:
    """503, and when."""
    world.sender.told["shop:1"] = UNKNOWN
    status, headers, answer = world.ask(page_view())
    assert (status, answer["code"]) == (503, "OUTCOME_UNKNOWN")
    assert int(headers["retry-after"]) > 0


def test_what_the_broker_refuses_for_good_is_no_unknown_outcome(world: World) -> None:
    """A repeat would be refused again."""
    world.sender.told["shop:1"] = TOO_LARGE
    status, headers, answer = world.ask(page_view())
    assert (status, answer["code"]) == (422, "EVENT_NOT_TAKEN")
    assert "retry-after" not in headers


@pytest.mark.parametrize(
    ("told", "body", "status", "entries"),
    [
        ({}, ["shop:1", "shop:2"], 202, [202, 202]),
        ({}, ["shop:1", "till:2", "shop:3"], 207, [202, 403, 202]),
        ({}, ["till:1", "till:2"], 422, [403, 403]),
        ({"shop:2": UNKNOWN}, ["shop:1", "shop:2"], 503, [202, 503]),
        ({"shop:2": UNKNOWN}, ["till:1", "shop:2"], 503, [403, 503]),
        ({"shop:1": TOO_LARGE}, ["shop:1", "shop:2"], 207, [422, 202]),
        ({"shop:1": TOO_LARGE}, ["shop:1"], 422, [422]),
    ],
)
def test_the_status_of_a_batch_never_hides_an_events(
    world: World,
    told: dict[str, Delivery],
    body: list[str],
    status: int,
    entries: list[int],
) -> None:
    """202 only for all; 503 as soon as one may or may not be there."""
    world.sender.told = told
    found, headers, answer = world.ask([page_view(name) for name in body])
    assert (found, statuses(answer)) == (status, entries)
    assert ("retry-after" in headers) == (status == 503)
    assert world.sender.sent == [name for name in body if name.startswith("shop:")]


def test_a_full_queue_refuses_and_sends_nothing(world: World) -> None:
    """429 with Retry-After; room that was taken is given back."""

    async def scenario() -> None:
        world.sender.holds_back = True
        world.endpoint.in_flight.events.take("shop", EVENTS_IN_FLIGHT_MAX // 2 - 1)
        waiting = asyncio.create_task(world.answer(page_view()))
        await world.sender.was_asked.wait()
        status, headers, answer = await asyncio.wait_for(
            world.answer(page_view("shop:2")), 5
        )
        assert (status, answer["code"]) == (429, "QUEUE_FULL")
        assert int(headers["retry-after"]) > 0
        assert world.sender.sent == ["shop:1"]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert world.endpoint.in_flight.events.taken == EVENTS_IN_FLIGHT_MAX // 2 - 1
        assert world.endpoint.in_flight.bytes.taken == 0

    asyncio.run(scenario())


def test_bodies_count_by_the_bytes_that_have_come(world: World) -> None:
    """A hundred that have begun keep no other from being taken."""

    async def scenario() -> None:
        went_on, all_began = asyncio.Event(), asyncio.Event()
        beginning = 100

        def slowly() -> Give:
            parts = [b" ", json.dumps(page_view()).encode()]

            async def receive() -> Message:
                nonlocal beginning
                part = parts.pop(0)
                if not parts:
                    beginning -= 1
                    if not beginning:
                        all_began.set()
                    await went_on.wait()
                return {"type": "http.request", "body": part, "more_body": bool(parts)}

            return receive

        waiting = [
            asyncio.create_task(world.answer(b"", receive=slowly(), content_length=""))
            for _ in range(100)
        ]
        await all_began.wait()
        assert world.endpoint.in_flight.bytes.taken == 100 * (REQUEST_BYTES + 1)
        assert (await world.answer(page_view("shop:2")))[0] == 202
        went_on.set()
        assert {answer[0] for answer in await asyncio.gather(*waiting)} == {202}
        assert world.endpoint.in_flight.bytes.taken == 0

    asyncio.run(scenario())


def test_a_body_that_finds_no_room_is_refused_on_its_way(world: World) -> None:
    """What it had is given back, and nothing was sent."""
    world.endpoint.in_flight.bytes.take("shop", BYTES_IN_FLIGHT_MAX // 2 - 50_000)
    whole = json.dumps(page_view()).encode().ljust(100_000)
    before = world.endpoint.in_flight.bytes.taken
    status, _, answer = world.ask(b"", receive=chunks(whole[:9_000], whole[9_000:]))
    assert (status, answer["code"]) == (429, "QUEUE_FULL")
    assert world.endpoint.in_flight.bytes.taken == before
    assert world.sender.sent == []


def take_all(room: Room, producer: str) -> None:
    """Take until it is refused."""
    while True:
        room.take(producer, REQUEST_BYTES)


def test_however_many_are_greedy_the_next_producer_finds_room() -> None:
    """Each may hold as much as is free, so some always is."""
    room = Room(BYTES_IN_FLIGHT_MAX)
    for number in range(10):
        with pytest.raises(RefusedError, match="QUEUE_FULL"):
            take_all(room, f"greedy-{number}")
    assert BYTES_IN_FLIGHT_MAX // 2 < room.taken < BYTES_IN_FLIGHT_MAX
    room.take("honest", REQUEST_BYTES)
    for producer, held in list(room._held.items()):
        room.give_back(producer, held)
    assert (room.taken, room._held) == (0, {})


def test_a_defect_is_answered_without_its_words(world: World) -> None:
    """500 with a code; what the exception says could be a part of the event."""

    def fail(*_: object) -> None:
        raise KeyError("secret")

    world.sender.send = fail  # type: ignore[assignment,method-assign]  # a defect
    status, headers, answer = world.ask(page_view())
    assert (status, answer["code"]) == (500, "INTERNAL_ERROR")
    assert headers["connection"] == "close"
    assert "secret" not in json.dumps(answer)
    assert world.endpoint.in_flight.events.taken == 0


def chunks(*parts: bytes) -> Give:
    """A body that arrives in parts."""
    waiting = list(parts)

    async def receive() -> Message:
        part = waiting.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    return receive


def test_a_body_is_counted_as_it_arrives() -> None:
    """Whatever its header says; the limit is inclusive."""
    half = b"x" * (BODY_BYTES_MAX // 2)
    whole = asyncio.run(read_body(chunks(half, half), declared=None))
    assert len(whole) == BODY_BYTES_MAX
    with pytest.raises(RefusedError, match="BODY_TOO_LARGE"):
        asyncio.run(read_body(chunks(half, half, b"x", b""), declared=None))


def test_a_body_that_does_not_come_is_given_up() -> None:
    """Its sender gets 408."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("never set")

    with pytest.raises(RefusedError, match="BODY_TOO_SLOW"):
        asyncio.run(read_body(receive, declared=None, timeout_s=0.01))


def test_a_client_that_leaves_gets_no_answer(world: World) -> None:
    """Half a body is no event."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(ValueError, match="not enough values"):
        world.ask(b"", receive=receive)
    assert world.sender.sent == []
    assert world.endpoint.in_flight.bytes.taken == 0
