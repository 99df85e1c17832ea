"""A pipeline in which a field turns up under every name that it can, for tests.

Each value is a token of its field and row, so whoever finds a token knows where it came
from. What is computed of a field holds its token whole, which is the worst that it may.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from tallyweir.schemas.codec import encode
from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts
from tallyweir.schemas.pipeline import (
    Append,
    Enrichment,
    Fixed,
    Join,
    JoinSide,
    Monitoring,
    Outbox,
    Pipeline,
    Prediction,
    Source,
    Window,
    stateful,
)
from tallyweir.schemas.pipeline.outputs.aggregate import parse_aggregate
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.outbox_table import OutboxTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents

PLACES = SourcePlaces(("people",))
#: Fields that are text; ``address`` is a record beside them.
FIELDS = ("person", "email", "city", "Note")
PARTS = ("street", "town")
#: All that may be redacted.
NAMES = (*FIELDS, "address", *(f"address.{part}" for part in PARTS))
#: What is computed; the last of a part of a field.
COMPUTE = {"lower": "lower(EMAIL)", "mailed": "lower", "housed": "address.street"}
#: What the transform adds.
ADDED = ("copied",)

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_SCHEMA = {
    "type": "record",
    "name": "Person",
    "fields": [
        *({"name": name, "type": "string"} for name in FIELDS),
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": part, "type": "string"} for part in PARTS],
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


@stateful(table="totals", key=["city"], columns={"guess": "text"})
def _totals(*_given: object) -> None:
    """Stand for a function that nobody can look into."""


def token(name: str, row: int) -> str:
    """Return what a field holds in a row; of nothing else this is a part."""
    return f"<{name}:{row}>"


@cache
def contracts() -> EventContracts:
    """Return the events' contract."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "person.v1.avsc")
        path.write_text(json.dumps(_SCHEMA))
        return load_event_contracts([str(path)])


def pipeline(*, samples: int, redact: tuple[str, ...]) -> Pipeline:
    """Return a pipeline with an output of every kind."""
    return Pipeline(
        name="people",
        source=Source(
            topic="people",
            schema="person.v1.avsc",
            event_id="person",
            event_time="at",
            watermark_delay=dt.timedelta(hours=1),
        ),
        compute=COMPUTE,
        enrich=(
            Enrichment(
                table="owners", on={"mailed": "email"}, select={"owner": "mail"}
            ),
            Enrichment(table="streets", on={"owner": "mail"}, select={"street": "it"}),
        ),
        transform=lambda events: events,
        predict=(
            Prediction(
                model="m.onnx",
                inputs={"x": ("length(EMAIL)",)},
                columns={"score": "y"},
            ),
        ),
        monitor=Monitoring(samples=samples, redact=redact),
        outputs=(
            Append(table="events"),
            Window(
                table="by_city",
                windows=Fixed(size=dt.timedelta(hours=1)),
                by=("city",),
                aggregates=(
                    parse_aggregate("last_mail", "max(mailed)"),
                    parse_aggregate("at_home", "max(address.street)"),
                    parse_aggregate("notes", "max(note)"),
                ),
            ),
            Outbox(topic="letters", key="person", select=("email", "Note")),
            Join(
                table="pairs",
                on=("city",),
                within=dt.timedelta(hours=1),
                left=JoinSide(where="true", select={"left_mail": "lower"}),
                right=JoinSide(where="true", select={"right_note": "Note"}),
            ),
            _totals,
        ),
    )


def _text(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, postgres_type="text") for name in names)


def _maximum(number: int, column: str) -> WindowAggregate:
    return WindowAggregate(
        column=Column(name=column, postgres_type="text"),
        function=AggregateFunction.MAX,
        number=number,
        partial_type="text",
    )


PAIRS = KeyedTable(
    table="pairs",
    staging_table="output_3",
    event_columns=_text("email", "Note"),
    key=_text("city"),
    columns=_text("left_mail", "right_note"),
)
TOTALS = KeyedTable(
    table="totals",
    staging_table="output_4",
    event_columns=_text(*FIELDS, "address"),
    key=_text("city"),
    columns=_text("guess"),
)
LAYOUT = PipelineLayout(
    pipeline="people",
    definition="{}",
    definition_hash="hash",
    outputs=(
        AppendTable(
            table="events",
            staging_table="output_0",
            event_columns=_text(
                *FIELDS, "address", *COMPUTE, "owner", "street", *ADDED, "score"
            ),
        ),
        WindowTable(
            table="by_city",
            staging_table="output_1",
            windows=fixed_windows(3_600_000_000),
            by=_text("city"),
            aggregates=(
                _maximum(0, "last_mail"),
                _maximum(1, "at_home"),
                _maximum(2, "notes"),
            ),
            allowed_lateness_us=0,
            late=LatePolicy.DROP,
        ),
        OutboxTable(
            table="letters",
            staging_table="output_2",
            topic="letters",
            fields=_text("email", "Note"),
            key=_text("person")[0],
        ),
        PAIRS,
        TOTALS,
    ),
    shards=1,
    bucket_seconds=3600,
    watermark_delay_us=0,
    idle_timeout_us=0,
    horizon_us=None,
)


def _everything(row: int) -> str:
    parts = [token(f"address.{part}", row) for part in PARTS]
    return "".join([*(token(name, row) for name in FIELDS), *parts])


def _address(row: int) -> dict[str, object]:
    return {part: token(f"address.{part}", row) for part in PARTS}


def events(rows: int) -> ClassifiedEvents:
    """Return good events, as a task has them when all is decided."""
    (contract,) = (one.contract for one in contracts().each)
    numbers = range(rows)
    records = [
        {
            **{name: token(name, row) for name in FIELDS},
            "address": _address(row),
            "at": _NOON,
        }
        for row in numbers
    ]
    mails = [token("email", row) for row in numbers]
    table = pa.table(
        {
            named.PLACE: pa.array([0] * rows, pa.int64()),
            named.OFFSET: pa.array(numbers, pa.int64()),
            named.VALUE: pa.array([encode(contract, one) for one in records]),
            named.KEY: pa.array([_everything(row).encode() for row in numbers]),
            named.EVENT_ID: pa.array([token("person", row) for row in numbers]),
            "address": pa.array([json.dumps(_address(row)) for row in numbers]),
            "lower": pa.array(mails),
            "mailed": pa.array(mails),
            "housed": pa.array([token("address.street", row) for row in numbers]),
            "owner": pa.array(mails),
            "street": pa.array(mails),
            "copied": pa.array([_everything(row) for row in numbers]),
            "score": pa.array(mails),
        }
    )
    return ClassifiedEvents(
        table=table,
        classes=np.zeros(rows, dtype=np.uint8),
        event_time_us=np.zeros(rows, dtype=np.int64),
    )


def staged(rows: int) -> dict[str, pa.Table]:
    """Return rows as a task would stage them, by their table."""
    numbers = range(rows)
    made = events(rows).table
    columns = {name: pa.array([token(name, row) for row in numbers]) for name in FIELDS}
    columns |= {
        name: made.column(name)
        for name in ("address", *COMPUTE, "owner", "street", *ADDED)
    }
    columns["score"] = made.column("score")
    position = {
        "kafka_topic": pa.array(["people"] * rows),
        "kafka_partition": pa.array([0] * rows, pa.int32()),
        "kafka_offset": pa.array(numbers, pa.int64()),
    }
    everything = made.column("copied")
    keyed = {"tallyweir_event_time": everything, "tallyweir_key": everything}
    windows = {
        "window_start": pa.array([_NOON] * rows),
        "window_end": pa.array([_NOON] * rows),
        "city": columns["city"],
        "tallyweir_events": pa.array([1] * rows),
        "tallyweir_a0_max": columns["email"],
        "tallyweir_a1_max": pa.array([token("address.street", n) for n in numbers]),
        "tallyweir_a2_max": columns["Note"],
    }
    mail = {name: columns[name] for name in ("email", "Note")}
    return {
        "output_0": pa.table(columns | position),
        "output_1": pa.table(windows),
        "output_2": pa.table(mail | keyed | position),
        "output_3": pa.table(mail | keyed | position),
        "output_4": pa.table(columns | keyed | position),
        "dead_letter": pa.table({"payload": everything}),
    }


def results(rows: int) -> list[tuple[KeyedTable, list[dict[str, object]]]]:
    """Return what functions on keyed state would have made."""
    pairs: list[dict[str, object]] = [
        {
            "city": token("city", row),
            "left_mail": token("email", row),
            "right_note": token("Note", row),
            "tallyweir_ordinal": 0,
        }
        for row in range(rows)
    ]
    totals: list[dict[str, object]] = [
        {"city": token("city", row), "guess": _everything(row)} for row in range(rows)
    ]
    return [(PAIRS, pairs), (TOTALS, totals)]


def undecodable(found: ClassifiedEvents, rows: list[int]) -> ClassifiedEvents:
    """Return the events with some that are no events of the contract."""
    values = [
        b"\x00" + one if row in rows else one
        for row, one in enumerate(found.table.column(named.VALUE).to_pylist())
    ]
    at = found.table.column_names.index(named.VALUE)
    return replace(found, table=found.table.set_column(at, named.VALUE, [values]))
