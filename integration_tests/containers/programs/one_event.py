"""Sends one flight to the topic, and one record that is no event."""

from __future__ import annotations

import datetime as dt

from confluent_kafka import Producer

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.sinks.kafka_settings import client_config

_TIMEOUT_S = 20

flight = {
    "event_id": "monitored",
    "scheduled_at": dt.datetime(2013, 1, 12, 10, 15, tzinfo=dt.UTC),
    "carrier": "UA",
    "flight": 1,
    "tailnum": None,
    "origin": "EWR",
    "destination": "IAH",
    "distance_miles": 1400,
    "dep_delay_minutes": 2,
    "arr_delay_minutes": None,
    "air_time_minutes": None,
}
producer = Producer({**client_config("kafka:9092")})
for value in (encode(load_contract("flight_departure.v1"), flight), b"no event"):
    producer.produce("flight-departures", value)
assert producer.flush(_TIMEOUT_S) == 0
