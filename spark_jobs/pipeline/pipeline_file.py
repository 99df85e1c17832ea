"""Pipelines as files: the keys of the YAML, and what each becomes.

A file is checked whole, against its contract too, before anything starts; the error
holds every problem that can be known, in the order of the lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path as FilePath

from schemas.contract import load_contract
from schemas.errors import ContractError
from spark_jobs.pipeline.aggregate import Aggregate, parse_aggregate
from spark_jobs.pipeline.columns import find_column_problems
from spark_jobs.pipeline.databases import HOME, check_declaration
from spark_jobs.pipeline.definition import (
    DEDUPLICATE_HORIZON,
    FUTURE_BOUND,
    IDLE_TIMEOUT,
    REFRESH,
    AppendOutput,
    Deduplicate,
    Enrichment,
    HeaderId,
    Late,
    Output,
    Pipeline,
    Rule,
    Source,
    WindowOutput,
)
from spark_jobs.pipeline.names import check_pipeline_name
from spark_jobs.pipeline.outbox_section import read_outbox
from spark_jobs.pipeline.problems import Path, Problem, suggest
from spark_jobs.pipeline.yaml_document import Section, open_document

_HEADER_PREFIX = "header:"
_PLACE = ("database", "shard_by")
_KINDS = ("append", "window", "outbox")
# Stands in for a missing or wrong name, so that the rest can be checked as well.
_NO_NAME = "unnamed"


def load_pipeline(path: FilePath) -> Pipeline:
    """Read a pipeline file and check all of it, against its contract as well.

    Where ``deduplicate`` is absent, its defaults hold: IDs are remembered for 7
    days. Only ``deduplicate: off`` turns it off.

    Raises:
        PipelineError: Something in the file, or the contract it names, must change;
            the error has the line of every problem.
    """
    file = open_document(path)
    required = ("pipeline", "source", "outputs")
    file.allow(*required, "deduplicate", "validate", "enrich", "databases")
    file.require(*required)
    pipeline = _read_pipeline(file)
    if pipeline is not None:
        _check_contract(pipeline, path, file)
    file.report.raise_if_any()
    assert pipeline is not None
    return pipeline


def _read_pipeline(file: Section) -> Pipeline | None:
    """Build what can be built; None, with the problems reported, if it is too little.

    Rules and outputs that are wrong are left out, so that the others can be checked.
    A wrong source or enrichment would make every column look unknown.
    """
    name = _read_name(file)
    section = file.section("source")
    source = _read_source(section) if section is not None else None
    deduplicate = _read_deduplicate(file)
    validate = _read_validate(file)
    enrich = [
        _read_enrichment(section) if section is not None else None
        for section in file.sections("enrich")
    ]
    databases = _read_databases(file)
    sections = file.sections("outputs")
    outputs = _read_outputs(sections)
    enrichments = tuple(one for one in enrich if one is not None)
    if source is None or len(enrichments) < len(enrich) or "outputs" not in file:
        return None
    if sections and not outputs:
        return None
    return file.report.attempt(
        (),
        Pipeline,
        name=name,
        source=source,
        deduplicate=deduplicate,
        validate=validate,
        enrich=enrichments,
        outputs=outputs,
        databases=databases,
    )


def _check_contract(pipeline: Pipeline, path: FilePath, file: Section) -> None:
    try:
        contract = load_contract(pipeline.source.schema, beside=path.parent)
    except ContractError as exc:
        at: Path = ("source", "schema")
        file.report.add(
            Problem(code=exc.code, at=at, saw=exc.saw, why=exc.why, fix=exc.fix)
        )
        return
    for problem in find_column_problems(pipeline, contract.fields):
        file.report.add(problem)


def _read_name(file: Section) -> str:
    name = file.text("pipeline")
    if name is None:
        return _NO_NAME
    problems = list(check_pipeline_name(name, ("pipeline",)))
    for problem in problems:
        file.report.add(problem)
    return _NO_NAME if problems else name


def _read_source(section: Section) -> Source | None:
    required = ("topic", "schema", "event_id", "event_time", "watermark_delay")
    section.allow(*required, "idle_timeout", "future_bound")
    section.require(*required)
    topic = section.text("topic")
    schema = section.text("schema")
    event_id = section.text("event_id")
    event_time = section.text("event_time")
    watermark_delay = section.duration("watermark_delay", None)
    idle_timeout = section.duration("idle_timeout", IDLE_TIMEOUT)
    future_bound = section.duration("future_bound", FUTURE_BOUND)
    if (
        topic is None
        or schema is None
        or event_id is None
        or event_time is None
        or watermark_delay is None
    ):
        return None
    identity: str | HeaderId = event_id
    if event_id.startswith(_HEADER_PREFIX):
        identity = HeaderId(header=event_id.removeprefix(_HEADER_PREFIX).strip())
    return section.report.attempt(
        section.at,
        Source,
        topic=topic,
        schema=schema,
        event_id=identity,
        event_time=event_time,
        watermark_delay=watermark_delay,
        idle_timeout=idle_timeout,
        future_bound=future_bound,
    )


def _read_deduplicate(file: Section) -> Deduplicate | None:
    if "deduplicate" not in file:
        return Deduplicate()
    if file.is_off("deduplicate"):
        return None
    section = file.section("deduplicate")
    if section is None:
        return Deduplicate()
    section.allow("horizon", "conflicts")
    horizon = section.duration("horizon", DEDUPLICATE_HORIZON)
    conflicts = section.boolean("conflicts", default=True)
    return section.report.attempt(
        section.at, Deduplicate, horizon=horizon, conflicts=conflicts
    )


def _read_validate(file: Section) -> tuple[Rule, ...]:
    section = file.section("validate")
    if section is None:
        return ()
    rules = [
        section.report.attempt(
            (*section.at, code), Rule, reason_code=code, condition=condition
        )
        for code, condition in _read_expressions(section)
    ]
    return tuple(rule for rule in rules if rule is not None)


def _read_enrichment(section: Section) -> Enrichment | None:
    section.allow("table", "on", "select", "default", "refresh")
    section.require("table", "on", "select")
    table = section.text("table")
    on = _read_pairs(section.section("on"))
    select = _read_pairs(section.section("select"))
    defaults = section.section("default")
    refresh = section.duration("refresh", REFRESH)
    if table is None or on is None or select is None:
        return None
    default = {} if defaults is None else defaults.scalars()
    return section.report.attempt(
        section.at,
        Enrichment,
        table=table,
        on=on,
        select=select,
        default=default,
        refresh=refresh,
    )


def _read_pairs(section: Section | None) -> dict[str, str] | None:
    if section is None:
        return None
    pairs = {key: section.text(key) for key in section}
    return {key: value for key, value in pairs.items() if value is not None}


def _read_expressions(section: Section) -> Iterator[tuple[str, str]]:
    """Read SQL by name; stop where YAML has cut an expression in two."""
    for key in section:
        text = section.text(key)
        if text is None:
            continue
        if text.count("(") > text.count(")"):
            section.reject(
                key,
                f"The expression ends at {text!r}.",
                "Between braces, YAML ends a value at a comma.",
                "Put quotation marks around the whole expression.",
            )
            return
        yield key, text


def _read_databases(file: Section) -> dict[str, str]:
    """Read where databases are; those that are wrong are left out."""
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
        section.allow(*_KINDS)
        kinds = [kind for kind in _KINDS if kind in section]
        if len(kinds) != 1:
            section.report.add(_not_one_kind(section.at, kinds))
            continue
        body = section.section(kinds[0])
        if body is None:
            continue
        at: Path = ("outputs", index, kinds[0])
        output = _read_output(kinds[0], body)
        if output is not None:
            # Outputs that are wrong are left out, so the others move up.
            section.report.alias(("outputs", len(outputs)), at)
            outputs.append(output)
    return tuple(outputs)


def _read_output(kind: str, section: Section) -> Output | None:
    if kind == "outbox":
        return read_outbox(section)
    return _read_append(section) if kind == "append" else _read_window(section)


def _not_one_kind(at: Path, kinds: list[str]) -> Problem:
    seen = f"both {' and '.join(kinds)}" if kinds else f"none of {', '.join(_KINDS)}"
    return Problem(
        code="PIPELINE_VALUE",
        at=at,
        saw=f"The output is {seen}.",
        why="Each output is one table, or one topic.",
        fix="Write - append: {table: ...} or - window: {table: ...}, a line for each.",
    )


def _read_append(section: Section) -> AppendOutput | None:
    section.allow("table", "columns", *_PLACE, "branches")
    section.require("table")
    table = section.text("table")
    columns = section.texts("columns")
    databases, shard_by = _read_place(section)
    branches = section.whole_number("branches", default=1)
    if table is None:
        return None
    return section.report.attempt(
        section.at,
        AppendOutput,
        table=table,
        columns=columns,
        databases=databases,
        shard_by=shard_by,
        branches=branches,
    )


def _read_place(section: Section) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read where an output's rows go: the databases, and by what they are chosen."""
    databases = section.one_or_more("database")
    shard_by = section.texts("shard_by")
    section.report.alias((*section.at, "databases"), (*section.at, "database"))
    return (HOME,) if databases is None else databases, shard_by or ()


def _read_window(section: Section) -> WindowOutput | None:
    for kind in ("sliding", "session"):
        if kind in section:
            section.reject(
                kind,
                f"The window is of the kind {kind}.",
                "This release has fixed windows only.",
                "Write fixed: and the window's length, such as fixed: 1 hour.",
                code="PIPELINE_UNSUPPORTED",
            )
            return None
    required = ("table", "fixed", "aggregate")
    section.allow(*required, "by", "allowed_lateness", "late", *_PLACE)
    section.require(*required)
    table = section.text("table")
    size = section.duration("fixed", None)
    by = section.texts("by")
    aggregates = _read_aggregates(section)
    allowed_lateness = section.duration("allowed_lateness", timedelta())
    late = _read_late(section)
    databases, shard_by = _read_place(section)
    section.report.alias((*section.at, "size"), (*section.at, "fixed"))
    section.report.alias((*section.at, "aggregates"), (*section.at, "aggregate"))
    if table is None or size is None or aggregates is None:
        return None
    return section.report.attempt(
        section.at,
        WindowOutput,
        table=table,
        size=size,
        by=by or (),
        aggregates=aggregates,
        allowed_lateness=allowed_lateness,
        late=late,
        databases=databases,
        shard_by=shard_by,
    )


def _read_aggregates(window: Section) -> tuple[Aggregate, ...] | None:
    """Read the aggregates; None if one of them is wrong, so that none is missed."""
    section = window.section("aggregate")
    if section is None:
        return None
    aggregates = [
        section.report.attempt((*section.at, column), parse_aggregate, column, text)
        for column, text in _read_expressions(section)
    ]
    read = tuple(one for one in aggregates if one is not None)
    return read if len(read) == len(list(section)) else None


def _read_late(section: Section) -> Late:
    text = section.text("late")
    known = [late.value for late in Late]
    if text is None:
        return Late.REVISE
    if text not in known:
        section.reject(
            "late",
            f"late is {text!r}.",
            f"It must be one of {', '.join(known)}.",
            suggest(text, known),
        )
        return Late.REVISE
    return Late(text)
