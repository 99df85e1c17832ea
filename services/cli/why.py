"""``why``: what became of an event?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from services.cli.pipeline_databases import pipeline_databases
from services.cli.pipeline_name import pipeline_name
from services.cli.rendering import example, say
from services.source_lag import lags_of
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.recovery import BrokerPosition


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        epilog=example(
            "tallyweir why departures UA-1545-2013-01-01",
            "tallyweir why orders 7f0c --source /shop/1",
        )
    )(why)


def why(
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline, or its YAML file.")
    ],
    event_id: Annotated[str, typer.Argument(help="The producer's ID of the event.")],
    source: Annotated[
        str | None,
        typer.Option(help="The event's ce_source, if the pipeline's IDs are ce_id."),
    ] = None,
) -> None:
    """Tell what became of an event, copy by copy, in whichever database it is.

    Exit code 1 when nothing is known of the ID; it then says what was searched and
    what cannot be known.
    """
    from services.endpoints import find_endpoints
    from services.id_fingerprints import fingerprints_of
    from services.open_transactions import find_held_back
    from sinks.postgres import audit
    from sinks.postgres.connection import connect

    databases = pipeline_databases(pipeline)
    endpoints = find_endpoints()
    name = pipeline_name(pipeline)

    def probe(key: bytes, event_id: str) -> tuple[bytes, ...]:
        return fingerprints_of(key, event_id, source)

    with connect(endpoints.home_dsn, application_name="tallyweir why") as home:
        explanation = audit.explain(home, name, event_id, probe, databases)
        read_from = audit.read_source(home, name)
    if explanation.is_known:
        for sentence in audit.narrate(
            explanation, payload_reader(read_from.schemas, pipeline)
        ):
            say(sentence)
        return
    broker = _read_broker(endpoints.kafka_bootstrap, read_from.topics)
    unread = lags_of(explanation.positions, broker)
    for sentence in audit.narrate_unknown(explanation, unread):
        say(sentence)
    for one in find_held_back(endpoints.kafka_bootstrap, broker or {}):
        say(f"{one.told()} The event may be among them.")
    raise typer.Exit(1)


def payload_reader(
    schemas: Sequence[str], pipeline: str
) -> Callable[[bytes], str | None]:
    """Return what decodes a payload for people, and gives None where it cannot.

    A contract that is a file beside the pipeline file is found only when the user
    named that file.
    """
    from schemas.codec import decode
    from schemas.errors import ContractError, DecodeError
    from schemas.event_contracts import load_event_contracts

    path = Path(pipeline)
    try:
        contracts = load_event_contracts(schemas, path if path.exists() else None)
    except ContractError:
        return lambda _payload: None

    def read(payload: bytes) -> str | None:
        try:
            return str(decode(payload, contracts.writers))
        except DecodeError:
            return readable_text(payload)

    return read


def readable_text(payload: bytes) -> str | None:
    """Return a payload that is a line of text, as rows of files are; None otherwise."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _read_broker(
    bootstrap: str, topics: tuple[str, ...]
) -> dict[TopicPartition, BrokerPosition] | None:
    from services.topic_log import TopicLog
    from sinks.protocol.errors import TallyweirError

    try:
        return TopicLog(bootstrap, *topics).read_positions()
    except TallyweirError:
        return None
