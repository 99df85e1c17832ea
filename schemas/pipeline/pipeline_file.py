"""Reads pipelines from files: the keys of the YAML, and the parts they become.

The whole file is checked, also against its contract, before anything starts. The error
has every problem that can be known, in order of lines. A file that ends with ``.py`` is
Python, and ``python_file`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from schemas.contract import load_contract
from schemas.errors import ContractError
from schemas.event_contracts import EventContracts, load_event_contract
from schemas.pipeline.checks.databases import check_declaration
from schemas.pipeline.checks.names import check_pipeline_name
from schemas.pipeline.checks.problems import Path, Problem, StandIn
from schemas.pipeline.columns import (
    contract_problems,
    find_column_problems,
    find_lookup_problems,
)
from schemas.pipeline.definition import Pipeline, Transform
from schemas.pipeline.document.expression_section import (
    read_condition,
    read_expressions,
)
from schemas.pipeline.document.word_section import read_word
from schemas.pipeline.document.yaml_document import Section, open_document
from schemas.pipeline.events.dead_letter_limit import (
    DEAD_LETTER_LIMIT_RECORDS,
    DeadLetterLimit,
)
from schemas.pipeline.events.deduplicate import DEDUPLICATE_HORIZON, Deduplicate
from schemas.pipeline.events.enrichment import Enrichment
from schemas.pipeline.events.enrichment_section import read_enrichment
from schemas.pipeline.events.monitoring import Monitoring
from schemas.pipeline.events.prediction import Prediction
from schemas.pipeline.events.prediction_section import read_prediction
from schemas.pipeline.events.rule import Rule
from schemas.pipeline.events.source import Source
from schemas.pipeline.events.source_section import no_source, read_source
from schemas.pipeline.outputs.append import AppendOutput
from schemas.pipeline.outputs.append_section import read_append
from schemas.pipeline.outputs.join_section import read_join
from schemas.pipeline.outputs.outbox_section import read_outbox
from schemas.pipeline.outputs.pipeline_output import Output
from schemas.pipeline.outputs.window_section import read_window
from schemas.pipeline.python_file import load_python_pipeline
from schemas.pipeline.redaction import find_redaction_problems
from sinks.protocol.catalog_limits import FALSE_POSITIVES
from sinks.protocol.guarantee import Guarantee

P = ParamSpec("P")
T = TypeVar("T")

#: How each kind is read, by its key; a new kind is added here.
OUTPUT_READERS: dict[str, Callable[[Section], Output | None]] = {
    "append": read_append,
    "window": read_window,
    "outbox": read_outbox,
    "join": read_join,
}
# Stand-in for a missing or wrong name, so that the rest can be checked as well.
_NO_NAME = "unnamed"
_NO_OUTPUT = (AppendOutput(table="unnamed"),)


def load_pipeline(path: FilePath) -> Pipeline:
    """Read a pipeline file and check all of it, also against its contract.

    Without ``deduplicate``, its defaults apply: IDs are remembered for 7 days. Only
    ``deduplicate: off`` or ``guarantee: at_least_once`` turns it off.

    Raises:
        PipelineError: The file, or a contract that it names, has problems; the error
            has the line of each.
        ConfigurationError, ContractError: As ``load_python_pipeline`` does.
    """
    return load_pipeline_and_modules(path)[0]


def load_pipeline_and_modules(
    path: FilePath,
) -> tuple[Pipeline, tuple[ModuleType, ...]]:
    """Read a pipeline file, as ``load_pipeline`` does; return its modules too.

    They are those of ``load_python_pipeline``; a YAML file has none.
    """
    if path.suffix == ".py":
        return load_python_pipeline(path)
    return _load_yaml(path), ()


def _load_yaml(path: FilePath) -> Pipeline:
    file = open_document(path)
    required = ("pipeline", "source", "outputs")
    optional = ("guarantee", "deduplicate", "validate", "enrich", "predict", "filter")
    file.allow(*required, *optional, "dead_letter_limit", "monitor", "databases")
    file.require(*required)
    parts = _read_parts(file)
    _check_contracts(parts, path, file)
    pipeline = _build(parts, file)
    file.report.raise_if_any()
    assert pipeline is not None
    return pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts of a file; a wrong part has a stand-in, or is left out.

    Attributes:
        transform: Stand-in if a lookup or a prediction is wrong, because the columns
            after it are as unknown as those of a transform; otherwise None.
        outputs_are_reported: A lack of outputs is already reported.
    """

    name: str
    source: Source
    guarantee: Guarantee
    deduplicate: Deduplicate | None
    validate: tuple[Rule, ...]
    enrich: tuple[Enrichment, ...]
    transform: Transform | None
    predict: tuple[Prediction, ...]
    filter: str | None
    dead_letter_limit: DeadLetterLimit | None
    monitor: Monitoring
    outputs: tuple[Output, ...]
    outputs_are_reported: bool
    databases: Mapping[str, str]


def _read_parts(file: Section) -> _Parts:
    name = _read_name(file)
    section = file.section("source")
    source = no_source() if section is None else read_source(section)
    guarantee = read_word(file, "guarantee", Guarantee.EXACTLY_ONCE)
    deduplicate = _read_deduplicate(file, guarantee)
    validate = _read_validate(file)
    enrich, is_enriched = _until_wrong(file.sections("enrich"), read_enrichment)
    predict, is_predicted = _until_wrong(file.sections("predict"), read_prediction)
    databases = _read_databases(file)
    sections = file.sections("outputs")
    outputs = _read_outputs(sections)
    condition = read_condition(file, "filter")
    limit = _read_dead_letter_limit(file)
    monitor = _read_monitor(file)
    return _Parts(
        name=name,
        source=source,
        guarantee=guarantee,
        deduplicate=deduplicate,
        validate=validate,
        enrich=enrich,
        transform=None if is_enriched and is_predicted else _unknown,
        predict=predict,
        filter=condition,
        dead_letter_limit=limit,
        monitor=monitor,
        outputs=outputs,
        outputs_are_reported="outputs" not in file or bool(sections),
        databases=databases,
    )


def _until_wrong(
    sections: list[Section | None], read: Callable[[Section], T | None]
) -> tuple[tuple[T, ...], bool]:
    """Read a list; return the parts before a wrong one, and whether all are right."""
    found = [None if section is None else read(section) for section in sections]
    right = [one for one in takewhile(lambda one: one is not None, found) if one]
    return tuple(right), len(right) == len(found)


def _unknown(events: Any) -> Any:  # noqa: ANN401 - as users' transforms are
    """Stand in for unknown columns, after a part that is wrong."""
    raise NotImplementedError(events)


def _build(parts: _Parts, file: Section) -> Pipeline | None:
    """Build the pipeline; None, with problems reported, if parts do not fit."""
    # An empty list is a problem of the pipeline; other problems are reported already.
    outputs = parts.outputs or (_NO_OUTPUT if parts.outputs_are_reported else ())
    return file.report.attempt(
        (),
        Pipeline,
        name=parts.name,
        source=parts.source,
        guarantee=parts.guarantee,
        deduplicate=parts.deduplicate,
        validate=parts.validate,
        enrich=parts.enrich,
        predict=parts.predict,
        filter=parts.filter,
        dead_letter_limit=parts.dead_letter_limit,
        monitor=parts.monitor,
        outputs=outputs,
        databases=parts.databases,
    )


def _check_contracts(pipeline: _Parts, path: FilePath, file: Section) -> None:
    """Check the columns of the events, and of lookup topics."""
    source = pipeline.source
    contracts = None
    if not isinstance(source.schema, StandIn):
        contracts = _read_event_contracts(source, path, file)
    if contracts is not None:
        for problem in find_column_problems(pipeline, contracts.fields):
            file.report.add(problem)
        for problem in find_redaction_problems(pipeline, contracts):
            file.report.add(problem)
    for index, enrichment in enumerate(pipeline.enrich):
        if enrichment.schema is None:
            continue
        at: Path = ("enrich", index)
        looked_up = _attempt(
            file, (*at, "schema"), load_contract, enrichment.schema, path.parent
        )
        if looked_up is not None:
            for problem in find_lookup_problems(enrichment, looked_up.fields):
                file.report.add(problem.under(*at))


def _read_event_contracts(
    source: Source, path: FilePath, file: Section
) -> EventContracts | None:
    """Read the contracts one by one, so that each mistake has its own line."""
    at: Path = ("source", "schema")
    found = [
        _attempt(
            file,
            (*at, index),
            load_event_contract,
            reference,
            path.parent,
        )
        for index, reference in enumerate(source.schemas)
    ]
    usable = tuple(one for one in found if one is not None)
    if len(usable) < len(found):
        return None
    return _attempt(file, at, EventContracts, usable)


def _attempt(
    file: Section, at: Path, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """Call ``make``; return None, with the problem reported, if a contract is wrong."""
    try:
        return make(*args, **kwargs)
    except ContractError as exc:
        for problem in contract_problems(exc):
            file.report.add(problem.under(*at))
        return None


def _read_name(file: Section) -> str:
    name = file.text("pipeline")
    if name is None:
        return _NO_NAME
    problems = list(check_pipeline_name(name, ("pipeline",)))
    for problem in problems:
        file.report.add(problem)
    return _NO_NAME if problems else name


def _read_deduplicate(file: Section, guarantee: Guarantee) -> Deduplicate | None:
    if "deduplicate" not in file:
        return Deduplicate() if guarantee is Guarantee.EXACTLY_ONCE else None
    if file.is_off("deduplicate"):
        return None
    section = file.section("deduplicate")
    if section is None:
        return Deduplicate()
    section.allow("horizon", "conflicts", "false_positives")
    horizon = section.duration("horizon", DEDUPLICATE_HORIZON)
    conflicts = section.boolean("conflicts", default=True)
    false_positives = section.share("false_positives", default=FALSE_POSITIVES)
    return section.report.attempt(
        section.at,
        Deduplicate,
        horizon=horizon,
        conflicts=conflicts,
        false_positives=false_positives,
    )


def _read_validate(file: Section) -> tuple[Rule, ...]:
    section = file.section("validate")
    if section is None:
        return ()
    rules = [
        section.report.attempt(
            (*section.at, code), Rule, reason_code=code, condition=condition
        )
        for code, condition in read_expressions(section)
    ]
    return tuple(rule for rule in rules if rule is not None)


def _read_dead_letter_limit(file: Section) -> DeadLetterLimit | None:
    section = file.section("dead_letter_limit")
    if section is None:
        return None
    section.allow("share", "records")
    section.require("share")
    # A missing or wrong share is reported already; 0 is the strictest.
    share = section.share("share", default=0.0)
    records = section.whole_number("records", default=DEAD_LETTER_LIMIT_RECORDS)
    return section.report.attempt(
        section.at, DeadLetterLimit, share=share, records=records
    )


def _read_monitor(file: Section) -> Monitoring:
    section = file.section("monitor")
    if section is None:
        return Monitoring()
    section.allow("show_keys", "samples", "redact")
    monitoring = section.report.attempt(
        section.at,
        Monitoring,
        show_keys=section.boolean("show_keys", default=False),
        samples=section.whole_number("samples", default=0),
        redact=section.texts("redact") or (),
    )
    # Its problems are reported already.
    return monitoring or Monitoring()


def _read_databases(file: Section) -> dict[str, str]:
    """Read the databases' connection strings, without wrong ones."""
    section = file.section("databases")
    if section is None:
        return {}
    databases: dict[str, str] = {}
    for name, value in section.scalars().items():
        if value is not None and not isinstance(value, str):
            section.reject(
                name,
                f"The connection string of {name!r} is not text.",
                "libpq reads it.",
                "Write host=... dbname=..., or nothing where the environment gives it.",
            )
            continue
        problems = list(check_declaration(name, value or "", (*section.at, name)))
        for problem in problems:
            section.report.add(problem)
        if not problems:
            databases[name] = value or ""
    return databases


def _read_outputs(sections: list[Section | None]) -> tuple[Output, ...]:
    outputs: list[Output] = []
    for index, section in enumerate(sections):
        if section is None:
            continue
        section.allow(*OUTPUT_READERS)
        kinds = [kind for kind in OUTPUT_READERS if kind in section]
        if len(kinds) != 1:
            section.report.add(_not_one_kind(section.at, kinds))
            continue
        body = section.section(kinds[0])
        if body is None:
            continue
        at: Path = ("outputs", index, kinds[0])
        output = OUTPUT_READERS[kinds[0]](body)
        if output is not None:
            # Wrong outputs are left out, so later ones move up.
            section.report.alias(("outputs", len(outputs)), at)
            outputs.append(output)
    return tuple(outputs)


def _not_one_kind(at: Path, kinds: list[str]) -> Problem:
    seen = (
        f"both {' and '.join(kinds)}"
        if kinds
        else f"none of {', '.join(OUTPUT_READERS)}"
    )
    return Problem(
        code="PIPELINE_VALUE",
        at=at,
        saw=f"The output is {seen}.",
        why="Each output is one table, or one topic.",
        fix="Write - append: {table: ...} or - window: {table: ...}, a line for each.",
    )
