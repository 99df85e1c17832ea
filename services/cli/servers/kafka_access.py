"""``kafka-access``: makes topics, users and rights of pipelines in a secured Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say

if TYPE_CHECKING:
    from tallyweir.services.kafka.kafka_access import KafkaService


@command(
    "tallyweir kafka-access departures.yaml --partitions 4",
    "tallyweir kafka-access departures.yaml --user driver=driver.properties",
    name="kafka-access",
)
def kafka_access(
    pipelines: Annotated[list[Path], typer.Argument(help="Pipeline files.")],
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=FILE",
            help="ingest, producer, driver, relay or viewer, and the file of its "
            "Kafka settings.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Create missing topics with this many partitions."),
    ] = None,
) -> None:
    """Make the topics of pipelines, and each service's user with its rights.

    Comes in as an administrator, by TALLYWEIR_KAFKA_CONFIG. Harmless to repeat; a
    password that has changed in a service's file is changed in Kafka too.
    """
    from tallyweir.services.kafka.kafka_access import grant_access
    from tallyweir.services.kafka.topics import ensure_topic
    from tallyweir.services.process.endpoints import require_kafka_bootstrap
    from tallyweir.services.produce.source_section import (
        read_outbox_topics,
        read_source_section,
    )

    bootstrap = require_kafka_bootstrap()
    users = [_service_and_file(given) for given in user or ()]
    topics = [t for path in pipelines for t in read_source_section(path).topics]
    for topic in topics:
        found = ensure_topic(bootstrap, topic, partitions=partitions)
        say(f"topic {topic}: {found} partitions")
    outboxes = [topic for path in pipelines for topic in read_outbox_topics(path)]
    if users:
        for name in grant_access(bootstrap, topics, outboxes, users):
            say(f"user {name}: has the rights that it needs")


def _service_and_file(given: str) -> tuple[KafkaService, Path]:
    from tallyweir.services.kafka.kafka_access import KafkaService

    service, separator, path = given.partition("=")
    known = [known.value for known in KafkaService]
    if not separator or service not in known:
        raise typer.BadParameter(
            f"{given!r} is not SERVICE=FILE with one of {', '.join(known)}",
            param_hint="--user",
        )
    return KafkaService(service), Path(path)
