"""``emit``: sends events from CSV or JSON lines to a pipeline's topic."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import EndsWithJson
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json, use_rich
from tallyweir.sinks.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from tallyweir.services.cli.pipelines.emitted_records import Supply
    from tallyweir.services.produce.emit import EmitReport
    from tallyweir.services.produce.faults import FaultRates
    from tallyweir.services.produce.source_section import SourceSection


_Key = Annotated[
    str | None, typer.Option(help="Field that keys the messages [the event ID].")
]
_Topic = Annotated[
    str | None,
    typer.Option(help="The topic, if the pipeline reads several."),
]
_Schema = Annotated[
    str | None,
    typer.Option(help="The contract, if the pipeline reads several."),
]


@command(
    "tallyweir emit departures.yaml --input flights.csv --partitions 4",
    "tallyweir emit departures.yaml --input flights.csv --duplicates 0.2 "
    "--poison 0.01 --invalid distance_miles=-1 --seed 7",
    "cat clicks.jsonl | tallyweir emit clicks.yaml --input -",
    "tallyweir emit --template page-views --rate 500 --seconds 60",
)
def emit(  # noqa: PLR0913, PLR0917 (the options of a command)
    pipeline: Annotated[
        Path | None,
        typer.Argument(help="Pipeline file: names topic, contract and event ID."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--input", help=".csv or .jsonl; - is JSON lines on stdin."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help="Send made-up events that fit this template, until Ctrl-C."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Events per second, at most.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many seconds.")
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=0, help="How many rows to send, from the first.")
    ] = None,
    duplicates: Annotated[
        float, typer.Option(help="Share of events to repeat, same ID and bytes.")
    ] = 0.0,
    poison: Annotated[
        float, typer.Option(help="Share of broken messages to add.")
    ] = 0.0,
    conflicts: Annotated[
        float, typer.Option(help="Share of IDs to reuse with another payload.")
    ] = 0.0,
    disorder: Annotated[
        float, typer.Option(help="Share of events sent a little late.")
    ] = 0.0,
    invalid: Annotated[
        str | None,
        typer.Option(metavar="FIELD=VALUE", help="Let --poison send this value too."),
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(help="The ID's field, where the pipeline takes it from a header."),
    ] = None,
    key: _Key = None,
    seed: Annotated[int, typer.Option(help="Same seed, same faults.")] = 7,
    topic: _Topic = None,
    schema: _Schema = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Create a missing topic with these.")
    ] = None,
    as_json: EndsWithJson = False,
) -> None:
    """Send events to a pipeline's topic; ends well only when Kafka has them all.

    The faults are for trials: they are repeatable, and the report says what an
    exactly-once pipeline must make of them.
    """
    # Import here: `--help` of other commands must not wait for the Kafka client.
    from tallyweir.services.cli.pipelines.emitted_records import choose_supply
    from tallyweir.services.produce.faults import FaultRates

    rates = FaultRates(
        duplicates=duplicates,
        poison=poison,
        conflicts=conflicts,
        disorder=disorder,
        invalid=_parse_invalid(invalid),
    )
    report = _send(
        choose_supply(pipeline, source, template),
        _Wishes(
            rates=rates,
            rate=rate,
            events=events,
            seconds=seconds,
            id_field=id_field,
            key=key,
            seed=seed,
            topic=topic,
            schema=schema,
            partitions=partitions,
        ),
    )
    _show_report(report, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wishes:
    """The options of the command that say how to send events."""

    rates: FaultRates
    rate: float | None
    events: int | None
    seconds: float | None
    id_field: str | None
    key: str | None
    seed: int
    topic: str | None
    schema: str | None
    partitions: int | None


def _send(supply: Supply, wishes: _Wishes) -> EmitReport:
    from tallyweir.services.cli.pipelines.emitted_records import until_interrupted
    from tallyweir.services.kafka.topics import ensure_topic
    from tallyweir.services.process.endpoints import (
        given_kafka_bootstrap,
        resolve_endpoints,
    )
    from tallyweir.services.produce.emit import PacedRecords, plan_faults
    from tallyweir.services.produce.emit import emit as emit_records
    from tallyweir.services.produce.producer import EventProducer
    from tallyweir.services.produce.source_section import read_source_section
    from tallyweir.services.produce.written_contract import load_written_contract

    section = read_source_section(supply.pipeline)
    topic = section.choose_topic(wishes.topic)
    contract = load_written_contract(
        section,
        schema=section.choose_schema(wishes.schema),
        topic=topic,
        path=supply.pipeline,
    )
    event_id = _id_field(section, wishes.id_field)
    with supply.open(contract, limit=wishes.events, seed=wishes.seed) as records:
        bootstrap = given_kafka_bootstrap() or resolve_endpoints().kafka_bootstrap
        plan = plan_faults(
            contract=contract,
            event_id=event_id,
            key=wishes.key,
            partitions=ensure_topic(bootstrap, topic, partitions=wishes.partitions),
            rates=wishes.rates,
            seed=wishes.seed,
        )
        paced = PacedRecords(
            records, rate=wishes.rate, events=wishes.events, seconds=wishes.seconds
        )
        with until_interrupted(paced):
            return emit_records(
                EventProducer(bootstrap),
                topic=topic,
                plan=plan,
                records=paced,
                id_header=section.id_header,
                on_progress=_show_progress,
            )


def _id_field(section: SourceSection, given: str | None) -> str:
    if section.id_field is not None:
        return section.id_field
    if given is None:
        place = (
            "the position in Kafka as the event ID"
            if section.id_is_position
            else f"the event ID from {section.event_id}"
        )
        raise ConfigurationError(
            "ID_FIELD_MISSING",
            saw=f"The pipeline takes {place}.",
            why="A row has no key, no headers and no position yet; one of its fields "
            "must tell it from others.",
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
            why="It needs a field and a value that breaks the field's rule.",
            fix="Write it in the form distance_miles=-1.",
        )
    try:
        return field, json.loads(value)
    except ValueError:
        return field, value


def _show_progress(sent: int, delivered: int) -> None:
    line = f"{sent:,} sent, {delivered:,} acknowledged"
    if use_rich(sys.stderr):
        # Overwrite one line; the report clears it.
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
