"""``why``: tells what became of an event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import (
    PipelineName,
    connected_home,
    pipeline_databases,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say
from tallyweir.services.kafka.source_lag import lags_of, positions_of

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.sinks.postgres.audit import AuditedSource, Explanation


@command(
    "tallyweir why departures UA-1545-2013-01-01",
    "tallyweir why orders 7f0c --source /shop/1",
)
def why(
    pipeline: PipelineName,
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
    from tallyweir.services.kafka.open_transactions import find_held_back
    from tallyweir.services.operate.id_fingerprints import fingerprints_of
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.kafka_admin import KafkaAdmin
    from tallyweir.sinks.postgres import audit

    databases = pipeline_databases(pipeline)
    endpoints = find_endpoints()
    name = pipeline_name(pipeline)

    def probe(key: bytes, event_id: str) -> tuple[bytes, ...]:
        return fingerprints_of(key, event_id, source)

    with connected_home("why") as home:
        explanation = audit.explain(home, name, event_id, probe, databases)
        read_from = audit.read_source(home, name)
        if explanation.is_known:
            for sentence in audit.narrate(
                explanation, payload_reader(read_from, pipeline)
            ):
                say(sentence)
            _say_windows(
                home,
                endpoints.kafka_bootstrap,
                explanation,
                source,
                _contracts(read_from, pipeline),
            )
            return
    topics = read_from.topics
    positions, _ = KafkaAdmin(endpoints.kafka_bootstrap, *topics).read_there()
    broker = positions_of(topics, positions)
    unread = lags_of(explanation.positions, broker)
    for sentence in audit.narrate_unknown(explanation, unread):
        say(sentence)
    for one in find_held_back(endpoints.kafka_bootstrap, broker or {}):
        say(f"{one.told()} The event may be one of them.")
    raise typer.Exit(1)


def payload_reader(
    source: AuditedSource, pipeline: str
) -> Callable[[bytes], str | None]:
    """Return a function that decodes a payload for people, or returns None.

    A contract that is a file next to the pipeline file is found only if the user named
    the pipeline file.
    """
    from tallyweir.schemas.codec import decode
    from tallyweir.schemas.errors import DecodeError

    contracts = _contracts(source, pipeline)
    if contracts is None:
        return lambda _payload: None

    def read(payload: bytes) -> str | None:
        try:
            return str(decode(payload, contracts.writers))
        except DecodeError:
            return readable_text(payload)

    return read


def _contracts(source: AuditedSource, pipeline: str) -> EventContracts | None:
    """Load the contracts of the pipeline's events; None if one is not found."""
    from tallyweir.schemas.errors import ContractError
    from tallyweir.schemas.event_contracts import load_event_contracts
    from tallyweir.schemas.pipeline.events.source_key import SourceKey

    path = Path(pipeline)
    key = None if source.key is None else SourceKey(**source.key).reference
    try:
        beside = path if path.exists() else None
        return load_event_contracts(source.schemas, beside, source.registered, key=key)
    except ContractError:
        return None


def _say_windows(
    home: Connection[TupleRow],
    bootstrap: str,
    explanation: Explanation,
    source: str | None,
    contracts: EventContracts | None,
) -> None:
    """Print the window rows that an event is in, if Kafka still has it."""
    from tallyweir.services.operate.event_search import WantedEvent, find_event
    from tallyweir.sinks.postgres import audit

    if explanation.in_windows_only and contracts is None:
        say("Name the pipeline's file to see which: its contracts are beside it.")
        return
    for added in explanation.in_windows_only:
        assert contracts is not None
        wanted = WantedEvent(
            event_id=explanation.event_id,
            source=source,
            contracts=contracts,
            id_columns=explanation.id_columns,
            id_header=explanation.id_header,
        )
        sequence = added.batch.sequence
        ranges = audit.read_batch_ranges(home, explanation.pipeline, sequence)
        event = find_event(bootstrap, ranges, wanted)
        if event is None:
            say("Kafka no longer has it, or did not answer in time.")
            continue
        for row in audit.find_window_rows(home, explanation.pipeline, event):
            say(row.told())


def readable_text(payload: bytes) -> str | None:
    """Return a payload that is one line of text, as in text files; otherwise None."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
