"""Run the ingest process, and end it without losing an event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from tallyweir.services.ingest.application import IngestApplication
from tallyweir.services.ingest.kafka_sender import DELIVERY_TIMEOUT_S
from tallyweir.services.ingest.key_file import KeyFile
from tallyweir.services.ingest.request_body import BODY_TIMEOUT_S
from tallyweir.services.ingest.served_topics import ServedTopic
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.process.http_server import DrainingServer, listen
from tallyweir.sinks.protocol.errors import FatalError

#: The longest time that a request in flight can take, and a little more.
DRAIN_TIMEOUT_S = round(BODY_TIMEOUT_S + DELIVERY_TIMEOUT_S) + 2


def serve(  # noqa: PLR0913 (keyword-only; the settings of a service)
    *,
    bootstrap: str,
    served: Mapping[str, ServedTopic],
    keys: KeyFile,
    host: str,
    port: int,
    public_names: Iterable[str],
) -> None:
    """Serve until SIGTERM or Ctrl-C, then answer what is in flight and return.

    Args:
        bootstrap: The broker's address.
        served: The served topics by name.
        keys: The keys of the producers that may send.
        host: The address to listen on.
        port: The port; 0 takes any free port, and the log names it.
        public_names: The service's names in addition to ``host`` and loopback's names.

    Raises:
        ConfigurationError: The address or a name cannot be used, or a topic is
            missing.
        RetryableError: The broker does not answer.
        FatalError: The Kafka client can never send again; restart the service.
    """
    for name in served:
        ensure_topic(bootstrap, name)
    with listen(host, port) as listener:
        fatal: list[str] = []

        def end(error: str) -> None:
            fatal.append(error)
            server.should_exit = True

        server = DrainingServer(
            IngestApplication(
                bootstrap=bootstrap, served=served, keys=keys, on_fatal=end
            ),
            names=(host, *public_names),
            drain_timeout_s=DRAIN_TIMEOUT_S,
        )
        log = structlog.get_logger()
        address, chosen = listener.getsockname()[:2]
        log.info("ingest listens", host=address, port=chosen, topics=sorted(served))
        server.run(sockets=[listener])
        log.info("ingest stopped")
    if fatal:
        raise FatalError(
            "KAFKA_CLIENT_BROKEN",
            saw=f"The Kafka client gave up: {fatal[0]}.",
            why="The client no longer knows which events the broker has.",
            fix="Start the service again; producers can safely repeat unanswered "
            "events.",
        )
