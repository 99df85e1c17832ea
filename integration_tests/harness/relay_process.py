"""``python -m integration_tests.harness.relay_process``: a relay that fails on order.

It is the production relay with two changes: the home's server ends its session when
it is idle for a second, and at one moment of its first chunk it dies or hangs.

It reads one JSON object from its first argument::

    {"home": DSN, "kafka": "host:port", "moment": "read" | "sent" | null,
     "signal": "SIGKILL" | "SIGSTOP"}
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tallyweir.services.relay import service
from tallyweir.services.relay.service import RelayMetrics
from tallyweir.services.relay.stream_producer import StreamProducer
from tallyweir.sinks.postgres.records import relay_feed
from tallyweir.sinks.postgres.records.relay_feed import RelayFeed
from tallyweir.sinks.process_log import configure_logging

IDLE_TIMEOUT_S = 1.0


def _before(owner: type, name: str, act: Callable[[], None]) -> None:
    """Do something just before a method, at its first call only."""
    method = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> object:  # noqa: ANN401 - any method's
        setattr(owner, name, method)
        act()
        return method(*args, **options)

    setattr(owner, name, wrapped)


def main() -> None:
    """Run until stopped."""
    orders = json.loads(sys.argv[1])

    def fail() -> None:
        os.kill(os.getpid(), signal.Signals[orders["signal"]])

    if orders["moment"] == "read":
        _before(StreamProducer, "send", fail)
    elif orders["moment"] == "sent":
        _before(RelayFeed, "move_cursor", fail)
    defaults = RelayFeed.__init__.__kwdefaults__
    assert defaults == {"idle_timeout_s": relay_feed.IDLE_TIMEOUT_S}
    defaults["idle_timeout_s"] = IDLE_TIMEOUT_S
    configure_logging()
    relay = service.RelayService(
        orders["home"], orders["kafka"], every_s=0.2, metrics=RelayMetrics()
    )
    relay.stop_on_signals()
    relay.run()


if __name__ == "__main__":
    main()
