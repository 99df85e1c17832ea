"""A producer that speaks only HTTP and retries blindly until it is told 202."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping

_TIMEOUT_S = 10.0
_RETRY_PAUSE_S = 0.2


class BlindHttpProducer(threading.Thread):
    """Sends events one after the other; an event is sent until it is acknowledged.

    Every tenth event is sent once more although it was acknowledged, as a client does
    whose connection broke before the answer came.

    Args:
        find_address: Asked before each try, because a container that comes back may
            have another address.
        topic: Where to.
        key: API key.
        events: What to send, each with its own ID.
    """

    def __init__(
        self,
        find_address: Callable[[], str],
        topic: str,
        key: str,
        events: Iterable[Mapping[str, object]],
    ) -> None:
        super().__init__(daemon=True)
        self._find_address = find_address
        self._topic = topic
        self._key = key
        self._events = events
        #: The ID of each acknowledged event, by partition and offset.
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.accepted = 0
        self.failures = 0

    def run(self) -> None:
        """Send all events."""
        for number, event in enumerate(self._events):
            for _ in range(2 if number % 10 == 0 else 1):
                while not self._send(event):
                    self.failures += 1
                    time.sleep(_RETRY_PAUSE_S)

    def _send(self, event: Mapping[str, object]) -> bool:
        request = urllib.request.Request(
            f"http://{self._find_address()}:8080/v1/events/{self._topic}",
            data=json.dumps(event).encode(),
            headers={
                "Authorization": f"Bearer {self._key}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                body = json.loads(answer.read())
                status = answer.status
        except (OSError, urllib.error.URLError):
            return False
        assert status == 202, (status, body)
        for accepted in body["events"]:
            place = accepted["partition"], accepted["offset"]
            self.acknowledged[place] = str(event["event_id"])
        self.accepted += 1
        return True
