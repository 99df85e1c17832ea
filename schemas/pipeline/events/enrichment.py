"""Enrichments: columns that are looked up for each event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from tallyweir.schemas.contract import REGISTRY, DeclaredFields, is_of_registry
from tallyweir.schemas.formats.debezium_envelope import ENVELOPES, OP
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.known_formats import with_framing
from tallyweir.schemas.pipeline.checks.databases import HOME, check_databases
from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.names import (
    check_column,
    check_output_column,
    check_table,
    check_topic,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Problem,
    StandIn,
    empty_value,
    raise_if_any,
)
from tallyweir.schemas.pipeline.document.file_keys import (
    Duration,
    Keys,
    Pairs,
    Scalar,
    Simples,
    Text,
)

REFRESH = timedelta(minutes=10)

#: Lookup column with the key of a topic's records, as text.
KAFKA_KEY = "kafka_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """Selects the row of a key that is valid at the event time.

    Attributes:
        valid_from: Lookup column with the first valid instant; null for no start.
        valid_until: Lookup column with the first instant after that; null for no end.
    """

    valid_from: str
    valid_until: str

    def __post_init__(self) -> None:
        raise_if_any("AsOf", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_column(self.valid_from, ("from",))
        yield from check_column(self.valid_until, ("until",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """Columns looked up in a table or a topic that fits into memory.

    Attributes:
        table: The lookup table; None if the lookup is a topic.
        database: Database of the table.
        topic: The lookup topic; the newest record of each key counts.
        schema: Contract of the topic's values, as in ``Source``; ``registry`` for the
            subject ``TOPIC-value`` of a schema registry, of Protobuf with ``#`` and the
            message.
        fields: Of a topic of JSON, the path of each field to its Postgres type, as in
            ``Source``, instead of a contract; ``schema`` may be ``registry`` beside it.
        envelope: ``debezium`` if the values are the changes of a table; the lookup then
            is that table, as its rows were changed last.
        on: Event column to lookup column; the values of all must be equal.
        select: New column to lookup column.
        default: New column to its value if no row matches; null without an entry.
        as_of: Selects one of several rows of a key; without it, a key has one row.
        refresh: Greatest age of the copy.
    """

    table: str | None = None
    database: str = HOME
    topic: str | None = None
    schema: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    envelope: str | None = None
    on: Mapping[str, str]
    select: Mapping[str, str]
    default: Mapping[str, Scalar] = field(default_factory=dict)
    as_of: AsOf | None = None
    refresh: timedelta = REFRESH

    def __post_init__(self) -> None:
        raise_if_any("Enrichment", self._find_problems())

    @property
    def label(self) -> str:
        """Name of the lookup for people."""
        if self.topic is not None:
            return f"topic {self.topic}"
        return f"{self.table}" + (
            "" if self.database == HOME else f" in {self.database}"
        )

    @property
    def wanted_subject(self) -> str | None:
        """The subject to pin a version of; None if no registry has the contract."""
        is_registered = is_of_registry(self.schema) and not self.fields
        return f"{self.topic}-value" if is_registered else None

    @property
    def wanted_part(self) -> str | None:
        """The message of the subject's schema; None if it is one contract."""
        _, mark, part = (self.schema or "").partition("#")
        return part if mark else None

    @property
    def reference(self) -> str:
        """The contract of a topic's values, as ``load_event_contracts`` takes it."""
        if self.fields:
            fields = _with_op(self.fields) if self.envelope else self.fields
            return DeclaredFields(
                fields=fields,
                unknown="ignore",
                envelope=self.envelope or "",
                framed=self.schema == REGISTRY,
            ).reference
        return with_framing(self.schema or "", Framing.CONFLUENT, self.envelope)

    def _find_problems(self) -> Iterator[Problem]:
        yield from self._find_place_problems()
        for name, pairs in (("on", self.on), ("select", self.select)):
            if not pairs:
                yield empty_value((name,))
            for lookup in pairs.values():
                yield from check_column(lookup, (name,))
        for column in self.select:
            yield from check_output_column(column, ("select", column))
        for column in self.default:
            if column not in self.select:
                yield Problem(
                    code="PIPELINE_UNKNOWN_COLUMN",
                    at=("default", column),
                    saw=f"There is a default for {column!r}.",
                    why="Only a column that select creates can have a default.",
                    fix=f"Write one of {', '.join(self.select)}.",
                )
        yield from check_duration(self.refresh, ("refresh",), zero=False)

    def _find_place_problems(self) -> Iterator[Problem]:
        """Find settings that leave open, or say twice, where to look."""
        if self.table is not None and self.topic is None:
            yield from check_table(self.table, ("table",))
            yield from check_databases((self.database,), ("database",))
            for key in ("schema", "fields", "envelope"):
                if getattr(self, key):
                    yield _misplaced(key, "A table's columns already have types.")
            return
        if self.topic is None or self.table is not None:
            seen = "neither" if self.topic is None else "both"
            yield Problem(
                code="PIPELINE_VALUE",
                saw=f"The enrichment has {seen} of table and topic.",
                why="An enrichment looks up in exactly one place.",
                fix="Write table, or topic and schema.",
            )
            return
        yield from check_topic(self.topic, ("topic",))
        if self.envelope is not None and self.envelope not in ENVELOPES:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("envelope",),
                saw=f"The envelope is {self.envelope!r:.80}.",
                why="Lookup topics are read without an envelope, or in a known one.",
                fix=f"Write {' or '.join(ENVELOPES)}, or remove envelope.",
            )
        if self.fields and self.schema not in {None, REGISTRY}:
            yield _misplaced("schema", "The columns are those in fields.")
        if not self.schema and not self.fields:
            yield Problem(
                code="PIPELINE_MISSING_KEY",
                at=("schema",),
                saw="The lookup topic has no schema.",
                why="Its values cannot be decoded without a schema.",
                fix="Add schema with the name or the file of the contract; for JSON, "
                "add fields.",
            )
        if self.database != HOME:
            yield _misplaced("database", "A topic does not belong to a database.")


def _with_op(fields: Mapping[str, str]) -> dict[str, str]:
    """Add the operation, which says what was deleted."""
    return {**fields, OP: "text not null"}


def _misplaced(key: str, why: str) -> Problem:
    return Problem(
        code="PIPELINE_VALUE",
        at=(key,),
        saw=f"The enrichment has a {key}.",
        why=why,
        fix="Remove it.",
    )


def names_in_ledger(enrichments: Sequence[Enrichment]) -> list[str]:
    """Return the names of lookups in the ledger: number, from 1, and label."""
    return [f"{number}: {one.label}" for number, one in enumerate(enrichments, 1)]


class AsOfKeys(Keys[AsOf]):
    """The keys of ``as_of``."""

    part = AsOf

    valid_from: Text = Field(alias="from")
    valid_until: Text = Field(alias="until")


class EnrichmentKeys(Keys[Enrichment]):
    """The keys of a lookup in ``enrich``."""

    part = Enrichment
    stand_ins: ClassVar[Mapping[str, object]] = {
        "table": "unnamed",
        "topic": "unnamed",
        "schema": StandIn("unnamed"),
    }

    table: Text | None = None
    database: Text = HOME
    topic: Text | None = None
    schema_: Text | None = None
    fields: Pairs = Field(default={})
    envelope: Text | None = None
    on: Pairs
    select: Pairs
    default: Simples = Field(default={})
    as_of: AsOfKeys | None = None
    refresh: Duration = REFRESH
