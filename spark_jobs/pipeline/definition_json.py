"""A pipeline as JSON, for the ledger: what ran, comparable and readable years later.

Whatever has an order is a list, because Postgres' ``jsonb`` does not keep the order
of keys; durations are text, as in pipeline files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from spark_jobs.pipeline.aggregate import Aggregate, AggregateFunction
from spark_jobs.pipeline.databases import HOME
from spark_jobs.pipeline.definition import (
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
from spark_jobs.pipeline.durations import format_duration, parse_duration
from spark_jobs.pipeline.outbox import OutboxOutput

FORMAT = 1


def pipeline_definition_json(pipeline: Pipeline) -> dict[str, Any]:
    """Describe a pipeline so that ``from_json`` gives an equal one back."""
    source = pipeline.source
    return {
        "format": FORMAT,
        "name": pipeline.name,
        "source": {
            "topic": source.topic,
            "schema": source.schema,
            "event_id": (
                {"header": source.event_id.header}
                if isinstance(source.event_id, HeaderId)
                else {"field": source.event_id}
            ),
            "event_time": source.event_time,
            "watermark_delay": format_duration(source.watermark_delay),
            "idle_timeout": format_duration(source.idle_timeout),
            "future_bound": format_duration(source.future_bound),
        },
        "deduplicate": (
            {
                "horizon": format_duration(pipeline.deduplicate.horizon),
                "conflicts": pipeline.deduplicate.conflicts,
            }
            if pipeline.deduplicate is not None
            else None
        ),
        "validate": [
            {"reason_code": rule.reason_code, "condition": rule.condition}
            for rule in pipeline.validate
        ],
        "enrich": [_enrichment_to_json(one) for one in pipeline.enrich],
        "outputs": [_output_to_json(output) for output in pipeline.outputs],
    }


def definition_hash(pipeline: Pipeline) -> str:
    """Give equal pipelines the same 64 hex digits, in every process and release."""
    definition = pipeline_definition_json(pipeline)
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_json(definition: Mapping[str, Any]) -> Pipeline:
    """Build the pipeline that ``pipeline_definition_json`` described.

    Raises:
        PipelineError: This release refuses what an older one accepted.
        ValueError: Another format, or not made by ``pipeline_definition_json``.
    """
    if definition.get("format") != FORMAT:
        raise ValueError(
            f"a pipeline in format {definition.get('format')!r}, expected {FORMAT}"
        )
    source = definition["source"]
    event_id = source["event_id"]
    deduplicate = definition["deduplicate"]
    return Pipeline(
        name=definition["name"],
        source=Source(
            topic=source["topic"],
            schema=source["schema"],
            event_id=(
                HeaderId(header=event_id["header"])
                if "header" in event_id
                else event_id["field"]
            ),
            event_time=source["event_time"],
            watermark_delay=parse_duration(source["watermark_delay"]),
            idle_timeout=parse_duration(source["idle_timeout"]),
            future_bound=parse_duration(source["future_bound"]),
        ),
        deduplicate=(
            Deduplicate(
                horizon=parse_duration(deduplicate["horizon"]),
                conflicts=deduplicate["conflicts"],
            )
            if deduplicate is not None
            else None
        ),
        validate=tuple(Rule(**rule) for rule in definition["validate"]),
        enrich=tuple(_enrichment_from_json(one) for one in definition["enrich"]),
        outputs=tuple(_output_from_json(one) for one in definition["outputs"]),
    )


def _enrichment_to_json(enrichment: Enrichment) -> dict[str, Any]:
    return {
        "table": enrichment.table,
        "on": [list(pair) for pair in enrichment.on.items()],
        "select": [list(pair) for pair in enrichment.select.items()],
        "default": [list(pair) for pair in enrichment.default.items()],
        "refresh": format_duration(enrichment.refresh),
    }


def _enrichment_from_json(definition: Mapping[str, Any]) -> Enrichment:
    return Enrichment(
        table=definition["table"],
        on=dict(definition["on"]),
        select=dict(definition["select"]),
        default=dict(definition["default"]),
        refresh=parse_duration(definition["refresh"]),
    )


def _output_to_json(output: Output) -> dict[str, Any]:
    if isinstance(output, AppendOutput):
        columns = None if output.columns is None else list(output.columns)
        return {
            "kind": "append",
            "table": output.table,
            "columns": columns,
            **_place_to_json(output),
            **({"branches": output.branches} if output.branches > 1 else {}),
        }
    if isinstance(output, OutboxOutput):
        return {
            "kind": "outbox",
            # As the ledger calls it, for readers that tell outputs apart by it.
            "table": output.table,
            "topic": output.topic,
            "key": output.key,
            "select": None if output.select is None else list(output.select),
        }
    return {
        "kind": "window",
        "table": output.table,
        "size": format_duration(output.size),
        "by": list(output.by),
        "aggregates": [
            {
                "column": aggregate.column,
                "function": aggregate.function.value,
                "argument": aggregate.argument,
            }
            for aggregate in output.aggregates
        ],
        "allowed_lateness": format_duration(output.allowed_lateness),
        "late": output.late.value,
        **_place_to_json(output),
    }


def _place_to_json(output: Output) -> dict[str, Any]:
    """Describe where an output goes; nothing for the home, as before there was more.

    Where a database is does not belong to it: that may change, and the pipeline is
    the same.
    """
    place: dict[str, Any] = {}
    if output.databases != (HOME,):
        place["databases"] = list(output.databases)
    if output.shard_by:
        place["shard_by"] = list(output.shard_by)
    return place


def _output_from_json(definition: Mapping[str, Any]) -> Output:
    databases = tuple(definition.get("databases", (HOME,)))
    shard_by = tuple(definition.get("shard_by", ()))
    if definition["kind"] == "append":
        columns = definition["columns"]
        return AppendOutput(
            table=definition["table"],
            columns=None if columns is None else tuple(columns),
            databases=databases,
            shard_by=shard_by,
            branches=definition.get("branches", 1),
        )
    if definition["kind"] == "outbox":
        select = definition["select"]
        return OutboxOutput(
            topic=definition["topic"],
            key=definition["key"],
            select=None if select is None else tuple(select),
        )
    return WindowOutput(
        table=definition["table"],
        size=parse_duration(definition["size"]),
        by=tuple(definition["by"]),
        aggregates=tuple(
            Aggregate(
                column=one["column"],
                function=AggregateFunction(one["function"]),
                argument=one["argument"],
            )
            for one in definition["aggregates"]
        ),
        allowed_lateness=parse_duration(definition["allowed_lateness"]),
        late=Late(definition["late"]),
        databases=databases,
        shard_by=shard_by,
    )
