"""``why``: tells what became of an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    from tallyweir.schemas.contract import Contract
    from tallyweir.sinks.postgres.audit import AuditedSource, CatalogHit, Explanation


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
            for hit in explanation.in_windows_only:
                writers = _writers(read_from, pipeline)
                _say_windows(home, endpoints.kafka_bootstrap, explanation, hit, writers)
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

    writers = _writers(source, pipeline)
    if not writers:
        return lambda _payload: None

    def read(payload: bytes) -> str | None:
        try:
            return str(decode(payload, writers))
        except DecodeError:
            return readable_text(payload)

    return read


def _writers(source: AuditedSource, pipeline: str) -> Mapping[int, Contract]:
    """Load the contracts of the pipeline's events; empty if one is not found."""
    from tallyweir.schemas.errors import ContractError
    from tallyweir.schemas.event_contracts import load_event_contracts

    path = Path(pipeline)
    try:
        beside = path if path.exists() else None
        found = load_event_contracts(source.schemas, beside, source.registered)
    except ContractError:
        return {}
    return found.writers


def _say_windows(
    home: Connection[TupleRow],
    bootstrap: str,
    explanation: Explanation,
    hit: CatalogHit,
    writers: Mapping[int, Contract],
) -> None:
    """Print the window rows that an event is in, if Kafka still has it."""
    from tallyweir.services.operate.event_search import find_event
    from tallyweir.sinks.postgres import audit

    assert hit.batch is not None
    fields = {field.name for one in writers.values() for field in one.fields}
    if explanation.id_field not in fields:
        # It is found by a field of its payload only.
        return
    assert explanation.id_field is not None
    event = find_event(
        bootstrap,
        audit.read_batch_ranges(home, explanation.pipeline, hit.batch.sequence),
        writers,
        id_field=explanation.id_field,
        event_id=explanation.event_id,
    )
    if event is None:
        say("Kafka no longer has it, or did not answer in time.")
        return
    for row in audit.find_window_rows(home, explanation.pipeline, event):
        say(row.told())


def readable_text(payload: bytes) -> str | None:
    """Return a payload that is one line of text, as in text files; otherwise None."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
