"""``emit``: events from CSV or JSON lines to a pipeline's topic."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from services.cli.rendering import example, note, say, say_json, use_rich
from sinks.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from services.ingest.emit import EmitReport

_FORMS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        epilog=example(
            "tallyweir emit departures.yaml --input flights.csv --partitions 4",
            "tallyweir emit departures.yaml --input flights.csv --duplicates 0.2 "
            "--poison 0.01 --invalid distance_miles=-1 --seed 7",
            "cat clicks.jsonl | tallyweir emit clicks.yaml --input -",
        )
    )(emit)


def emit(  # noqa: PLR0913, PLR0917 (the options of a command)
    pipeline: Annotated[
        Path, typer.Argument(help="Pipeline file: names topic, contract and event ID.")
    ],
    source: Annotated[
        str, typer.Option("--input", help=".csv or .jsonl; - is JSON lines on stdin.")
    ],
    events: Annotated[
        int | None, typer.Option(min=0, help="Send the first so many rows only.")
    ] = None,
    duplicates: Annotated[
        float, typer.Option(help="Share of events sent once more, same ID and bytes.")
    ] = 0.0,
    poison: Annotated[
        float, typer.Option(help="Share of broken messages on top.")
    ] = 0.0,
    conflicts: Annotated[
        float, typer.Option(help="Share of other payloads with the ID of an event.")
    ] = 0.0,
    disorder: Annotated[
        float, typer.Option(help="Share of events sent a little late.")
    ] = 0.0,
    invalid: Annotated[
        str | None,
        typer.Option(metavar="FIELD=VALUE", help="Lets poison break a rule as well."),
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(help="The ID's field, where the pipeline takes it from a header."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Field that keys the messages [the event ID].")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same faults.")] = 7,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Make the topic, if missing, with these.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one line of JSON.")
    ] = False,
) -> None:
    """Send events to a pipeline's topic; ends well only when Kafka has them all.

    The faults are for trials: they are repeatable, and the report says what an
    exactly-once pipeline must make of them.
    """
    # Imported here: `--help` of other commands must not wait for the Kafka client.
    from schemas.contract import load_contract
    from services.endpoints import given_kafka_bootstrap, resolve_endpoints
    from services.ingest.emit import emit as emit_records
    from services.ingest.emit import plan_faults
    from services.ingest.faults import FaultRates
    from services.ingest.producer import EventProducer
    from services.ingest.source_section import read_source_section
    from services.ingest.topics import ensure_topic
    from services.ingest.typed_rows import TypedRows

    section = read_source_section(pipeline)
    contract = load_contract(section.schema, pipeline)
    rates = FaultRates(
        duplicates=duplicates,
        poison=poison,
        conflicts=conflicts,
        disorder=disorder,
        invalid=_parse_invalid(invalid),
    )
    event_id = _id_field(section.id_header, section.event_id, id_field)
    with _open_input(source) as (lines, form):
        bootstrap = given_kafka_bootstrap() or resolve_endpoints().kafka_bootstrap
        plan = plan_faults(
            contract=contract,
            event_id=event_id,
            key=key,
            partitions=ensure_topic(bootstrap, section.topic, partitions=partitions),
            rates=rates,
            seed=seed,
        )
        report = emit_records(
            EventProducer(bootstrap),
            topic=section.topic,
            plan=plan,
            records=TypedRows(lines, contract, form=form, limit=events),
            id_header=section.id_header,
            on_progress=_show_progress,
        )
    _show_report(report, as_json=as_json)


def _id_field(id_header: str | None, event_id: str, given: str | None) -> str:
    if id_header is None:
        return event_id
    if given is None:
        raise ConfigurationError(
            "ID_FIELD_MISSING",
            saw=f"The pipeline takes the event ID from the header {id_header!r}.",
            why="A row has no headers; one of its fields must hold the ID.",
            fix="Name that field: --id-field FIELD.",
        )
    return given


def _parse_invalid(text: str | None) -> tuple[str, object] | None:
    if text is None:
        return None
    field, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(
            "INVALID_MALFORMED",
            saw=f"--invalid is {text!r}.",
            why="It is a field and the value that breaks its rule.",
            fix="Write it like distance_miles=-1.",
        )
    try:
        return field, json.loads(value)
    except ValueError:
        return field, value


@contextlib.contextmanager
def _open_input(source: str) -> Iterator[tuple[TextIO, str]]:
    if source == "-":
        yield sys.stdin, "jsonl"
        return
    path = Path(source)
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise ConfigurationError(
            "INPUT_FORM",
            saw=f"--input is {source!r}.",
            why="The ending tells how to read it.",
            fix=f"Use a file that ends in {', '.join(_FORMS)}, or - for stdin.",
        )
    try:
        file = path.open(encoding="utf-8", newline="")
    except OSError as exc:
        raise ConfigurationError(
            "INPUT_MISSING",
            saw=f"{path} cannot be read ({exc.strerror}).",
            why="It holds the events.",
            fix="Correct the path.",
        ) from exc
    with file:
        yield file, form


def _show_progress(sent: int, delivered: int) -> None:
    line = f"{sent:,} sent, {delivered:,} acknowledged"
    if use_rich(sys.stderr):
        # One line that renews itself; the report ends it.
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
    else:
        note(line)


def _show_report(report: EmitReport, *, as_json: bool) -> None:
    expected = report.expected
    if use_rich(sys.stderr):
        sys.stderr.write("\r\x1b[2K")
    if as_json:
        say_json(
            {
                "topic": report.topic,
                "delivered": report.delivered,
                "seconds": round(report.seconds, 3),
                **dataclasses.asdict(expected),
            }
        )
        return
    rate = report.delivered / report.seconds if report.seconds else 0.0
    say(
        f"{report.delivered:,} messages in {report.topic}, "
        f"{report.seconds:.1f} s, {rate:,.0f}/s"
    )
    say(f"  events      {expected.unique_valid:,}")
    say(f"  repeats     {_total(expected.duplicates)}")
    say(f"  conflicts   {expected.conflicts:,}")
    say(f"  poison      {_total(expected.poison)}")


def _total(counts: dict[str, int]) -> str:
    parts = [f"{count:,} {kind}" for kind, count in counts.items() if count]
    shown = f" ({', '.join(parts)})" if parts else ""
    return f"{sum(counts.values()):,}{shown}"
