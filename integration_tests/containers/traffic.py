"""Everybody who sends flights at once: over HTTP, natively, and in transactions."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from integration_tests.containers.deployment import Deployment, output_of
from integration_tests.containers.http_producer import BlindHttpProducer

TOPIC = "flight-departures"
#: ID of an event, partition and offset.
Report = tuple[str, int, int]

_NATIVE = ("idempotent", "transactional")
_HTTP_EVENTS_PER_S = 20
_END_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What producers were told.

    Attributes:
        acknowledged: There for good.
        aborted: There for nobody.
    """

    acknowledged: list[Report]
    aborted: list[Report]


class Traffic:
    """Sends until it is told to stop.

    Args:
        system: Its Kafka and ingest.
        secrets: Hold ingest's key.
        name: Begins the ID of each event.
    """

    def __init__(self, system: Deployment, secrets: Path, name: str) -> None:
        #: What producers were told, once they have stopped.
        self.promises = Promises(acknowledged=[], aborted=[])
        self._name = name
        self._stopping = threading.Event()
        self._http = BlindHttpProducer(
            lambda: system.address("ingest"),
            TOPIC,
            (secrets / "ingest.key").read_text().strip(),
            self._flights(),
        )
        self._http.start()
        self._native = [
            system.start_python("native_producer", f"{name}-{kind}", kind)
            for kind in _NATIVE
        ]

    def stop(self) -> None:
        """End, each producer after it knows what became of all that it sent."""
        self._stopping.set()
        for container in self._native:
            container.kill("SIGTERM")
        acknowledged = [
            (event_id, *place) for place, event_id in self._http_acknowledged().items()
        ]
        aborted: list[Report] = []
        for container in self._native:
            told = json.loads(output_of(container).splitlines()[-1])
            acknowledged += map(tuple, told["acknowledged"])
            aborted += map(tuple, told["aborted"])
        self.promises = Promises(acknowledged=acknowledged, aborted=aborted)

    def _http_acknowledged(self) -> dict[tuple[int, int], str]:
        self._http.join(_END_TIMEOUT_S)
        assert not self._http.is_alive(), "ingest does not answer"
        assert self._http.acknowledged, "ingest takes nothing"
        return self._http.acknowledged

    def _flights(self) -> Iterator[dict[str, object]]:
        for number in itertools.count():
            if self._stopping.wait(1 / _HTTP_EVENTS_PER_S):
                return
            yield {
                # What ingest lets this producer send.
                "event_id": f"demo:{self._name}:{number}",
                "scheduled_at": f"2013-01-12T10:{number % 60:02}:00Z",
                "carrier": "UA",
                "flight": number,
                "tailnum": None,
                "origin": "EWR",
                "destination": "IAH",
                "distance_miles": 1400,
                "dep_delay_minutes": number % 30,
                "arr_delay_minutes": None,
                "air_time_minutes": None,
            }
