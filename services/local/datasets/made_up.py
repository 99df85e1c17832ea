"""Made-up events with current times for the templates: endless and repeatable.

The same seed gives the same events, except for times and IDs. A time is that of the
clock, less a short delay of delivery. IDs differ at each start, so that the events of a
second run are new events, not those of the first run with another payload.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from tallyweir.schemas.codec import EventRecord
from tallyweir.services.local.datasets.flights import read_flights
from tallyweir.services.local.datasets.page_views import COUNTRIES, PAGES

Clock = Callable[[], dt.datetime]

USERS = 200
DEVICES = 20
MACHINES = 8
_ACTIONS = {"view": 70, "search": 18, "add_to_cart": 9, "purchase": 3}
#: Longest delay from an event to its producer.
_LAG_S = 2.0
#: Share of a machine's readings that are far too hot.
_ODD_MACHINE_SHARE = 0.002
_HOT_DEGREES = 40.0
#: Share of the orders with a field that the pipeline does not name.
_COUPON_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Events of one contract.

    Attributes:
        contract: Reference of the contract.
        events: Yields events for a seed and a clock, endless or all that exist.
    """

    contract: str
    events: Callable[[int, Clock], Iterator[EventRecord]]


def _page_views(seed: int, clock: Clock) -> Iterator[EventRecord]:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    ids = _ids(seed, clock)
    while True:
        yield {
            "event_id": _uuid(ids),
            "user_id": chance.randrange(USERS),
            # A few pages get most of the views.
            "page": PAGES[min(int(chance.expovariate(0.2)), len(PAGES) - 1)],
            "country": chance.choice(COUNTRIES),
            "viewed_at": _lately(chance, clock),
            "value": round(chance.expovariate(1.0), 2),
        }


def _user_actions(seed: int, clock: Clock) -> Iterator[EventRecord]:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    ids = _ids(seed, clock)
    while True:
        yield {
            "event_id": _uuid(ids),
            "user_id": chance.randrange(USERS),
            "action": chance.choices(list(_ACTIONS), list(_ACTIONS.values()))[0],
            "page": chance.choice(PAGES),
            "acted_at": _lately(chance, clock),
        }


def _sensor_readings(seed: int, clock: Clock) -> Iterator[EventRecord]:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    run = _uuid(_ids(seed, clock))[:8]
    for number in itertools.count():
        device = chance.randrange(DEVICES)
        yield {
            "event_id": f"{run}-{number}",
            "device": f"device-{device:02}",
            "value": round(chance.gauss(20.0 + device, 1.0), 3),
            "measured_at": _lately(chance, clock),
        }


def _machine_readings(seed: int, clock: Clock) -> Iterator[EventRecord]:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    run = _uuid(_ids(seed, clock))[:8]
    revolutions = [0] * MACHINES
    for number in itertools.count():
        machine = chance.randrange(MACHINES)
        revolutions[machine] += chance.randrange(20, 30)
        odd = chance.random() < _ODD_MACHINE_SHARE
        yield {
            "event_id": f"{run}-{number}",
            "machine": f"machine-{machine}",
            "revolutions": revolutions[machine],
            "temperature": round(
                chance.gauss(60.0, 2.0) + (_HOT_DEGREES if odd else 0.0), 2
            ),
            "read_at": clock(),
        }


def _orders(seed: int, clock: Clock) -> Iterator[EventRecord]:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    ids = _ids(seed, clock)
    while True:
        yield {
            "order_id": _uuid(ids),
            "customer_id": chance.randrange(USERS),
            "amount_cents": chance.randrange(100, 50_000),
            "currency": chance.choice(("EUR", "USD", "GBP")),
            "ordered_at": _lately(chance, clock),
        }


def _json_orders(seed: int, clock: Clock) -> Iterator[EventRecord]:
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    ids = _ids(seed, clock)
    while True:
        prices = [chance.randrange(100, 20_000) for _ in range(chance.randint(1, 3))]
        items = [{"cents": price, "sku": f"s{price % 50}"} for price in prices]
        has_coupon = chance.random() < _COUPON_SHARE
        yield {
            "order_id": _uuid(ids),
            "customer_id": chance.randrange(USERS),
            "customer_country": chance.choice(COUNTRIES),
            "amount": Decimal(sum(prices)).scaleb(-2),
            "placed_at": _lately(chance, clock),
            "items": json.dumps(items, separators=(",", ":")),
            "rest": '{"coupon":"SPRING"}' if has_coupon else None,
        }


def _flights(_seed: int, _clock: Clock) -> Iterator[EventRecord]:
    return read_flights()


DATASETS: Mapping[str, Dataset] = {
    "page_views": Dataset(contract="page_view.v1", events=_page_views),
    "user_actions": Dataset(contract="user_action.v1", events=_user_actions),
    "sensor_readings": Dataset(contract="sensor_reading.v1", events=_sensor_readings),
    "machine_readings": Dataset(
        contract="machine_reading.v1", events=_machine_readings
    ),
    "orders": Dataset(contract="order.v1", events=_orders),
    # Its pipeline names the fields itself.
    "json_orders": Dataset(contract="fields", events=_json_orders),
    "flights": Dataset(contract="flight_departure.v1", events=_flights),
}


def _ids(seed: int, clock: Clock) -> random.Random:
    return random.Random(f"{seed} {clock().isoformat()}")  # noqa: S311 - nothing secret


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _lately(chance: random.Random, clock: Clock) -> dt.datetime:
    return clock() - dt.timedelta(seconds=chance.random() * _LAG_S)
