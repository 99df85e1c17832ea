"""Reads a check file: cases with records, lookup rows, and what is expected of them."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator

from tallyweir.schemas.errors import EncodeError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.json_records import UnreadableTextError
from tallyweir.schemas.pipeline import Pipeline
from tallyweir.schemas.pipeline.checks.problems import Path as Place
from tallyweir.schemas.pipeline.checks.problems import Problem, suggest
from tallyweir.schemas.pipeline.document.file_keys import (
    Given,
    Info,
    Keys,
    Pairs,
    Parts,
    Text,
    WholeNumber,
    mistyped,
    one_by_one,
)
from tallyweir.schemas.pipeline.document.yaml_tree import (
    Report,
    YamlList,
    YamlMap,
    YamlScalar,
    YamlValue,
    read_tree,
)
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.registry.known_schemas import (
    reads_registry,
    without_registry,
)

#: What becomes of a record: the columns of the ledger.
OUTCOMES = ("committed", "dead", "duplicate", "expired", "filtered", "late")
_TRUE = {"true", "yes", "on"}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TYPES = {
    "timestamptz": "timestamp with time zone",
    "timestamp": "timestamp without time zone",
}
#: Kafka's timestamp of a record that gives none.
_TIMESTAMP = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRecord:
    """A record of a case.

    Attributes:
        line: Its line in the file.
        topic: Its topic.
        partition: Its partition.
        timestamp: Kafka's timestamp.
        key: Kafka's key.
        value: Its value; None for a tombstone.
        headers: Names and values of its headers.
        outcome: One of ``OUTCOMES``, which it is expected to have.
        reason: The expected reason of a dead letter; None for any.
    """

    line: int
    topic: str
    partition: int
    timestamp: dt.datetime
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    outcome: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLookup:
    """The rows of a lookup: its columns, and texts that Postgres reads as these."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """A row that an output is expected to have; it names the columns to compare."""

    line: int
    values: Mapping[str, YamlValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: what is given, and what is expected.

    Attributes:
        name: Its name.
        line: Its line in the file.
        records: The records, in the order in which Kafka has them.
        lookups: Rows by the name of the table or topic that is looked up.
        rows: The rows of each output that is compared.
        watermark: Where the watermark stands before the records; None for nowhere.
    """

    name: str
    line: int
    records: tuple[GivenRecord, ...]
    lookups: Mapping[str, GivenLookup]
    rows: Mapping[str, tuple[ExpectedRow, ...]]
    watermark: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """A check file.

    Attributes:
        pipeline: The pipeline, with no contract in a registry.
        cases: Its cases, at least one.
        schema: The contract's file that stands for the one in a registry; None if there
            is no registry.
        tables: The path of the SQL that creates tables of the user's own; None if the
            pipeline creates all of them.
    """

    pipeline: Pipeline
    cases: tuple[Case, ...]
    schema: str | None
    tables: Path | None


def _raw(value: Given, info: Info) -> str:
    """Read any scalar as it is written."""
    if isinstance(value, YamlScalar) and value.kind != "null":
        return value.text
    raise mistyped(value, info.context, "one value", "Write a text.")


_Raw = Annotated[str, PlainValidator(_raw)]


class _RecordKeys(Keys[GivenRecord]):
    part = GivenRecord
    stand_ins: ClassVar[Mapping[str, object]] = {"value": None}

    value: Any
    key: _Raw | None = None
    headers: Annotated[dict[str, _Raw], one_by_one()] = Field(default={})
    timestamp: _Raw | None = None
    topic: Text | None = None
    partition: WholeNumber = 0
    schema_: Text | None = None
    becomes: Text = OUTCOMES[0]


class _LookupKeys(Keys[GivenLookup]):
    part = GivenLookup
    stand_ins: ClassVar[Mapping[str, object]] = {
        "columns": dict[str, str](),
        "rows": (),
    }

    columns: Pairs
    rows: Any


class _CaseKeys(Keys[Case]):
    part = Case
    stand_ins: ClassVar[Mapping[str, object]] = {"name": "unnamed", "records": ()}

    name: Text
    records: Parts[_RecordKeys]
    lookups: Annotated[dict[str, _LookupKeys], one_by_one()] = Field(default={})
    rows: Any = None
    watermark: _Raw | None = None


class _FileKeys(Keys[CheckFile]):
    part = CheckFile
    stand_ins: ClassVar[Mapping[str, object]] = {"cases": ()}

    lookups: Annotated[dict[str, _LookupKeys], one_by_one()] = Field(default={})
    cases: Parts[_CaseKeys]
    schema_: Text | None = None
    tables: Text | None = None


def read_check_file(path: Path, pipeline: Pipeline, pipeline_file: Path) -> CheckFile:
    """Read the cases of a pipeline.

    Args:
        path: The check file.
        pipeline: The pipeline.
        pipeline_file: The pipeline's file, beside which its contracts are.

    Raises:
        PipelineError: The file has problems; the error has the line of each.
        ContractError: A contract cannot be used.
    """
    tree, report = read_tree(path)
    keys = _FileKeys.model_validate(tree, context=report)
    schema = None
    for problem in _registry_problems(keys.schema_, pipeline):
        report.add(problem)
    if reads_registry(pipeline):
        report.raise_if_any()
        schema = str((path.parent / (keys.schema_ or "")).resolve())
        pipeline = without_registry(pipeline, schema)
    reader = _CaseReader(pipeline, pipeline_file, report, keys.lookups)
    cases = tuple(
        reader.read(case, ("cases", number))
        for number, case in enumerate(keys.cases)
        if case is not None
    )
    if not keys.cases:
        reader.reject(
            ("cases",), "There is no case.", "Nothing would be checked.", "Add one."
        )
    tables = None if keys.tables is None else path.parent / keys.tables
    if tables is not None and not tables.is_file():
        reader.reject(
            ("tables",),
            f"There is no file {tables}.",
            "It creates the tables of your own.",
            "Correct the path, which starts at the check file's folder.",
        )
    report.raise_if_any()
    return CheckFile(pipeline=pipeline, cases=cases, schema=schema, tables=tables)


def _registry_problems(schema: str | None, pipeline: Pipeline) -> Iterator[Problem]:
    """Yield what keeps a pipeline over a registry from being checked without one."""
    if any(one.wanted_subject for one in pipeline.enrich):
        yield Problem(
            code="PIPELINE_VALUE",
            at=(),
            saw="The pipeline looks up in a topic behind a schema registry.",
            why="A check asks no registry.",
            fix="Check the pipeline with a file as the schema of that lookup.",
        )
    is_registered = pipeline.source.wanted_subject is not None
    if is_registered and schema is None:
        yield Problem(
            code="PIPELINE_MISSING_KEY",
            at=("schema",),
            saw="The contract is in a schema registry, and the cases name no file.",
            why="A check asks no registry.",
            fix="Add schema: FILE, a copy of the schema in the registry, such as "
            "order.v1.avsc or order.v1.schema.json.",
        )
    if schema is not None and not is_registered:
        yield Problem(
            code="PIPELINE_VALUE",
            at=("schema",),
            saw=f"The schema is {schema!r:.100}.",
            why="It stands for one in a registry, and the pipeline names its own.",
            fix="Remove it.",
        )


class _CaseReader:
    """Reads the keys of cases against their pipeline, and reports what is wrong."""

    def __init__(
        self,
        pipeline: Pipeline,
        pipeline_file: Path,
        report: Report,
        lookups: Mapping[str, _LookupKeys],
    ) -> None:
        self._pipeline = pipeline
        contracts = load_event_contracts(pipeline.source.schemas, pipeline_file)
        self._contracts = {
            reference: one.contract
            for reference, one in zip(
                pipeline.source.schemas, contracts.each, strict=True
            )
        }
        self._report = report
        self._shared = lookups
        self._outputs = [one.sends_to or one.table for one in pipeline.outputs]

    def read(self, keys: _CaseKeys, at: Place) -> Case:
        """Read one case."""
        if not keys.records:
            self.reject(
                (*at, "records"),
                "The case has no record.",
                "Nothing would be checked.",
                "Add one.",
            )
        return Case(
            name=keys.name,
            line=self._line(at),
            records=tuple(
                self._record(one, (*at, "records", number))
                for number, one in enumerate(keys.records)
                if one is not None
            ),
            lookups=dict(self._lookups(keys, at)),
            rows=dict(self._rows(keys.rows, (*at, "rows"))),
            watermark=None
            if keys.watermark is None
            else self._timestamp(keys.watermark, (*at, "watermark")),
        )

    def reject(self, at: Place, saw: str, why: str, fix: str) -> None:
        """Report a wrong value."""
        self._report.add(
            Problem(code="PIPELINE_VALUE", at=at, saw=saw, why=why, fix=fix)
        )

    def _line(self, at: Place) -> int:
        return self._report.lines.get(at, 1)

    def _record(self, keys: _RecordKeys, at: Place) -> GivenRecord:
        outcome, _, reason = keys.becomes.partition(" ")
        if outcome not in OUTCOMES or (reason and outcome != "dead"):
            self.reject(
                (*at, "becomes"),
                f"becomes is {keys.becomes!r}.",
                "A record becomes one of these; a dead one has a reason.",
                f"Write {', '.join(OUTCOMES)}, or dead REASON.",
            )
        return GivenRecord(
            line=self._line(at),
            topic=self._chosen(self._pipeline.source.topics, keys.topic, at, "topic"),
            partition=keys.partition,
            timestamp=self._timestamp(keys.timestamp, (*at, "timestamp")),
            key=None if keys.key is None else keys.key.encode(),
            value=self._value(keys, at),
            headers={name: value.encode() for name, value in keys.headers.items()},
            outcome=outcome,
            reason=reason.strip() or None,
        )

    def _chosen(
        self, known: Sequence[str], wanted: str | None, at: Place, key: str
    ) -> str:
        if wanted is None and len(known) == 1:
            return known[0]
        if wanted is None or wanted not in known:
            self.reject(
                (*at, key),
                f"The {key} is {wanted!r}." if wanted else f"There is no {key}.",
                f"The pipeline reads several: {', '.join(known)}."
                if len(known) > 1
                else f"The pipeline reads {known[0]}.",
                suggest(wanted or "", list(known)),
            )
            return known[0]
        return wanted

    def _timestamp(self, text: str | None, at: Place) -> dt.datetime:
        if text is None:
            return _TIMESTAMP
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.reject(
                at,
                f"The timestamp is {text!r}.",
                "It must be one moment.",
                "Write it as 2000-01-01T00:00:00Z.",
            )
            return _TIMESTAMP
        return moment.astimezone(dt.UTC)

    def _value(self, keys: _RecordKeys, at: Place) -> bytes | None:
        """Return a record's bytes: those of a text, or of an event in a mapping."""
        value = keys.value
        if not isinstance(value, YamlMap):
            is_null = value is None or (
                isinstance(value, YamlScalar) and value.kind == "null"
            )
            return None if is_null else self._text(value, at).encode()
        references = tuple(self._contracts)
        reference = self._chosen(references, keys.schema_, at, "schema")
        contract = self._contracts[reference]
        try:
            return contract.format.encode_document(contract, as_json(value))
        except (EncodeError, UnreadableTextError, BadNumberError) as error:
            self.reject(
                (*at, "value"),
                f"The value is no event: {error}.",
                "Only an event can be encoded.",
                f"Correct it by {contract.reference}, or write the text of a broken "
                "value.",
            )
            return None

    def _text(self, value: YamlValue, at: Place) -> str:
        if isinstance(value, YamlScalar):
            return value.text
        self.reject(
            at,
            "The value is a list.",
            "A record's value is an event or a text.",
            "Write a mapping or a text.",
        )
        return ""

    def _lookups(self, keys: _CaseKeys, at: Place) -> Iterator[tuple[str, GivenLookup]]:
        given = {
            **{name: (one, ("lookups", name)) for name, one in self._shared.items()},
            **{
                name: (one, (*at, "lookups", name))
                for name, one in keys.lookups.items()
            },
        }
        wanted = [one.table or one.topic or "" for one in self._pipeline.enrich]
        for name in wanted:
            if name not in given:
                self.reject(
                    at,
                    f"There are no rows of the lookup {name}.",
                    "The pipeline looks up in it.",
                    f"Add lookups: {{{name}: {{columns: ..., rows: ...}}}}.",
                )
        for name, (one, place) in given.items():
            if name not in wanted:
                self.reject(
                    place,
                    f"The pipeline does not look up in {name}.",
                    "Nothing would read the rows.",
                    suggest(name, wanted),
                )
                continue
            yield name, self._lookup(one, place)

    def _lookup(self, keys: _LookupKeys, at: Place) -> GivenLookup:
        columns = []
        for name, kind in keys.columns.items():
            column = Column(name=name, postgres_type=_TYPES.get(kind, kind))
            try:
                _ = column.definition
            except KeyError:
                self.reject(
                    (*at, "columns", name),
                    f"The type of {name} is {kind!r}.",
                    "A lookup's column has a type that events can have.",
                    "Write text, bigint, numeric, timestamptz or such.",
                )
            columns.append(column)
        rows = []
        for values, place in self._maps(keys.rows, (*at, "rows")):
            self._require_known(values, list(keys.columns), place)
            cells = [values.get(column.name) for column in columns]
            rows.append(tuple(None if cell is None else _cell(cell) for cell in cells))
        return GivenLookup(columns=tuple(columns), rows=tuple(rows))

    def _rows(
        self, given: object, at: Place
    ) -> Iterator[tuple[str, tuple[ExpectedRow, ...]]]:
        if given is None:
            return
        if not isinstance(given, YamlMap):
            self.reject(
                at,
                "rows is no mapping.",
                "Each output has rows of its own.",
                "Write rows: {TABLE: [{COLUMN: VALUE}]}.",
            )
            return
        self._require_known(given, self._outputs, at)
        for name, rows in given.items():
            yield (
                name,
                tuple(
                    ExpectedRow(line=self._line(place), values=values)
                    for values, place in self._maps(rows, (*at, name))
                ),
            )

    def _maps(self, given: object, at: Place) -> Iterator[tuple[YamlMap, Place]]:
        for number, one in enumerate(given if isinstance(given, YamlList) else [given]):
            if isinstance(one, YamlMap):
                yield one, (*at, number)
                continue
            self.reject(
                at,
                "These are no rows.",
                "A row names its columns.",
                "Write [{COLUMN: VALUE}], or [] for none.",
            )

    def _require_known(
        self, names: Mapping[str, object], known: list[str], at: Place
    ) -> None:
        for name in names:
            if name not in known:
                self.reject(
                    (*at, name),
                    f"{name} is unknown.",
                    "Nothing has that name.",
                    suggest(name, known),
                )


class BadNumberError(ValueError):
    """YAML takes something for a number that JSON cannot write."""


def _cell(value: YamlValue) -> str | None:
    """Return the text from which Postgres reads a cell."""
    if isinstance(value, YamlScalar):
        return None if value.kind == "null" else value.text
    return as_json(value)


def as_json(value: YamlValue) -> str:
    """Write a part of the file as JSON, with each digit of its numbers.

    Raises:
        BadNumberError: A number is not one of JSON's.
    """
    if isinstance(value, YamlMap):
        members = (f"{json.dumps(key)}:{as_json(one)}" for key, one in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, YamlList):
        return f"[{','.join(map(as_json, value))}]"
    match value.kind:
        case "null":
            return "null"
        case "bool":
            return "true" if value.text.lower() in _TRUE else "false"
        case "int" | "float":
            if _NUMBER.fullmatch(value.text) is None:
                raise BadNumberError(f"{value.text} is no number in JSON; quote it")
            return value.text
        case _:
            return json.dumps(value.text, ensure_ascii=False)
