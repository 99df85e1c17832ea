"""Mixed events of two contracts, as Spark and a task read them: the same comes out.

``python -m integration_tests.harness.decoded_contracts DIRECTORY`` ends with 0 if every
payload becomes what the strict decoder says of it. It is a process of its own, because
PySpark leaves its sockets to the collector.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tallyweir.schemas.codec import EventRecord, decode, diagnose, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.framing import HEADER_BYTES, split
from tallyweir.schemas.pipeline import Append, HeaderId, Pipeline, Source
from tallyweir.schemas.tests.strategies import FLAT_TYPES, Json, contract_of
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import start_spark_session
from tallyweir.spark_jobs.frame.event_frame import EventFrameRecipe
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.kafka_source import empty_batch
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.verdicts import Case, Rules

_EXAMPLES = int(os.environ.get("TALLYWEIR_DECODED_EXAMPLES", "25"))
_FAR = 2**62
_AT = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
_INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
_PIPELINE = Pipeline(
    name="p",
    source=Source(
        topic="t",
        schema=("order.v2", "payment.v1"),
        event_id=HeaderId(header="id"),
        event_time="at",
        watermark_delay=dt.timedelta(hours=1),
    ),
    outputs=(Append(table="t"),),
)
#: What comes after the question of decoding may still kill an event.
_LATER = {"MISSING_ID", "UNSTORABLE_VALUE", "TIMESTAMP_IN_FUTURE", "TIMESTAMP_TOO_OLD"}
_FORMS: Sequence[Callable[[object], object]] = (
    lambda kind: kind,
    lambda kind: ["null", kind],
    lambda kind: [kind, "null"],
)


@dataclass(frozen=True, slots=True)
class _Events:
    """Two contracts, of which the first has an older version, and payloads of all."""

    contracts: EventContracts
    payloads: tuple[bytes | None, ...]

    def expected(self, payload: bytes) -> EventRecord:
        """What the columns hold of an event, by the strict decoder."""
        record = decode(payload, self.contracts.writers)
        columns = {field.name: None for field in self.contracts.fields}
        defaults = {"added": "mm"} if split(payload)[0] == 1 else {}
        return {**columns, **record, **defaults}


def _contract(schema_id: int, name: str, version: int, fields: list[Json]) -> Contract:
    schema: Json = {"type": "record", "name": name, "fields": fields}
    made = contract_of(schema, schema_id=schema_id)
    return replace(made, name=name.lower(), version=version)


def _named(kind: object, name: str) -> object:
    return {**kind, "name": name} if isinstance(kind, dict) and "name" in kind else kind


@st.composite
def _events(draw: st.DrawFn) -> _Events:
    pool = draw(st.lists(st.sampled_from(FLAT_TYPES), min_size=1, max_size=5))
    written: list[list[Json]] = []
    records: list[st.SearchStrategy[EventRecord]] = []
    for _ in range(2):
        fields: list[Json] = [{"name": "at", "type": _INSTANT}]
        values: dict[str, st.SearchStrategy[object]] = {"at": st.just(_AT)}
        for index, (kind, strategy) in enumerate(pool):
            if not draw(st.booleans()):
                continue
            form = draw(st.sampled_from(_FORMS))
            name = f"f{index}"
            fields.append({"name": name, "type": form(_named(kind, f"T{index}"))})
            plain = form is _FORMS[0]
            values[name] = strategy if plain else st.none() | strategy
        written.append(draw(st.permutations(fields)))
        records.append(st.fixed_dictionaries(values))
    added: Json = {"name": "added", "type": "string", "default": "mm"}
    old = _contract(1, "Order", 1, written[0])
    new = _contract(2, "Order", 2, [*written[0], added])
    payment = _contract(3, "Payment", 1, written[1])
    good = st.one_of(
        records[0].map(lambda record: encode(old, record)),
        records[0].map(lambda record: encode(new, {**record, "added": "cm"})),
        records[1].map(lambda record: encode(payment, record)),
    )
    payloads = st.lists(good | _damaged(good), min_size=1, max_size=30)
    contracts = EventContracts(
        (
            EventContract(contract=new, writers={1: old, 2: new}),
            EventContract(contract=payment, writers={3: payment}),
        )
    )
    return _Events(contracts, tuple(draw(payloads)))


@st.composite
def _damaged(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes | None:
    payload = draw(good)
    at = draw(st.integers(0, len(payload) - 1))
    return draw(
        st.sampled_from(
            [
                None,
                payload[:at],
                payload + b"\x00",
                payload[:at] + draw(st.binary(max_size=3)) + payload[at + 1 :],
                # Another contract's id in front of the body, or nobody's.
                payload[: HEADER_BYTES - 1]
                + bytes([draw(st.integers(0, 4))])
                + payload[HEADER_BYTES:],
            ]
        )
    )


def _read(spark: SparkSession, events: _Events) -> pa.Table:
    """Let Spark decode the payloads, as for what it computes."""
    rows = [
        {
            "value": payload,
            "partition": 0,
            "offset": offset,
            "timestamp": _AT,
            "headers": [{"key": "id", "value": b"e"}],
        }
        for offset, payload in enumerate(events.payloads)
    ]
    schema = to_arrow_schema(empty_batch(spark).schema, timezone="UTC")
    # From Arrow, because rows of Python would need a worker to become rows of Spark.
    raw: DataFrame = spark.createDataFrame(pa.Table.from_pylist(rows, schema))
    recipe = EventFrameRecipe(pipeline=_PIPELINE, contracts=events.contracts)
    built = recipe.build(raw, [], SourcePlaces(("t",)))
    return built.toArrow().sort_by(named.OFFSET).combine_chunks()


def check(spark: SparkSession, events: _Events) -> None:
    """Assert that each payload becomes what the strict decoder says, in both ways."""
    read = _read(spark, events)
    names = [field.name for field in events.contracts.fields]
    payloads = read.column(named.VALUE).chunk(0)
    decoded = events.contracts.decoder(names).decode(payloads)
    table = read.append_column(named.EVENT_TIME, decoded.columns["at"])
    rules = Rules(
        contracts=events.contracts,
        latest_event_time_us=_FAR,
        rejected={},
        rule_conditions={},
    )
    found = ClassifiedEvents.undecided(table)
    Case(events=found, is_event=decoded.is_event, rules=rules).decide("validate")
    alive = found.is_class(EventClass.COMMITTED)
    for row, payload in enumerate(events.payloads):
        reason, detail = found.reasons.get(row, ("", ""))
        error = diagnose(payload, events.contracts.writers)
        if error is None:
            assert payload is not None
            assert alive[row] or reason in _LATER, (reason, detail)
            expected = events.expected(payload)
            for seen in (decoded.columns, {n: read.column(n) for n in names}):
                assert expected == {n: seen[n][row].as_py() for n in expected}
                assert all(seen[n].type == read.column(n).type for n in names)
        else:
            assert not alive[row]
            assert (error.reason_code, error.detail) == (reason, detail)


def main() -> int:
    """Check by chance, in one session."""
    spark = start_spark_session(
        DriverSettings(
            kafka_bootstrap="",
            home_dsn="",
            databases={},
            spark_master="local[1]",
            spark_jars=os.environ["TALLYWEIR_SPARK_JARS"],
            class_archive=None,
            state_directory=Path(sys.argv[1]),
            batch_offsets_max=1,
            driver_memory="1g",
        ),
        name="decoded",
    )

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        # Each try is a job of Spark; payloads of a failure are small as they are.
        phases=[Phase.generate],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(_events())
    def by_chance(events: _Events) -> None:
        check(spark, events)

    by_chance()
    return 0


if __name__ == "__main__":
    sys.exit(main())
