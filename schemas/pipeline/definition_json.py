"""A pipeline as JSON for the ledger, comparable and readable years later.

Everything with an order is a list, because Postgres' ``jsonb`` does not keep the order
of keys. Durations are text, as in pipeline files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from schemas.pipeline.checks.databases import HOME
from schemas.pipeline.definition import Pipeline
from schemas.pipeline.events.dead_letter_limit import DeadLetterLimit
from schemas.pipeline.events.deduplicate import Deduplicate
from schemas.pipeline.events.enrichment_json import (
    enrichment_from_json,
    enrichment_to_json,
)
from schemas.pipeline.events.monitoring_json import (
    monitoring_from_json,
    monitoring_to_json,
)
from schemas.pipeline.events.prediction_json import (
    prediction_from_json,
    prediction_to_json,
)
from schemas.pipeline.events.reported import Reported
from schemas.pipeline.events.rule import Rule
from schemas.pipeline.events.source import HeaderId, Source
from schemas.pipeline.outputs.append import AppendOutput
from schemas.pipeline.outputs.join import JoinOutput
from schemas.pipeline.outputs.join_json import join_from_json, join_to_json
from schemas.pipeline.outputs.outbox import OutboxOutput
from schemas.pipeline.outputs.pipeline_output import Output
from schemas.pipeline.outputs.place_json import place_to_json
from schemas.pipeline.outputs.stateful import StatefulOutput
from schemas.pipeline.outputs.stateful_json import stateful_to_json
from schemas.pipeline.outputs.window import WindowOutput
from schemas.pipeline.outputs.window_json import window_from_json, window_to_json
from sinks.protocol.catalog_limits import FALSE_POSITIVES
from sinks.protocol.durations import format_duration, parse_duration
from sinks.protocol.guarantee import Guarantee

FORMAT = 1


def pipeline_definition_json(pipeline: Pipeline) -> dict[str, Any]:
    """Describe a pipeline so that ``from_json`` returns an equal one."""
    source = pipeline.source
    return {
        "format": FORMAT,
        "name": pipeline.name,
        "source": {
            "topic": source_topic_json(source),
            "schema": source_schema_json(source),
            "event_id": (
                {"header": source.event_id.header}
                if isinstance(source.event_id, HeaderId)
                else {"field": source.event_id}
            ),
            "event_time": source.event_time,
            "watermark_delay": format_duration(source.watermark_delay),
            "idle_timeout": format_duration(source.idle_timeout),
            "future_bound": format_duration(source.future_bound),
            # Omit the key without a value, as before the key existed.
            **(
                {}
                if source.past_bound is None
                else {"past_bound": format_duration(source.past_bound)}
            ),
        },
        # Omit the default, as before the key existed.
        **(
            {}
            if pipeline.guarantee is Guarantee.EXACTLY_ONCE
            else {"guarantee": pipeline.guarantee.value}
        ),
        "deduplicate": (
            {
                "horizon": format_duration(pipeline.deduplicate.horizon),
                "conflicts": pipeline.deduplicate.conflicts,
                # Omit the default, as before the key existed.
                **(
                    {}
                    if pipeline.deduplicate.false_positives == FALSE_POSITIVES
                    else {"false_positives": pipeline.deduplicate.false_positives}
                ),
            }
            if pipeline.deduplicate is not None
            else None
        ),
        "validate": [
            {"reason_code": rule.reason_code, "condition": rule.condition}
            for rule in pipeline.validate
        ],
        "enrich": [enrichment_to_json(one) for one in pipeline.enrich],
        # Omit the key without predictions, as before the key existed.
        **(
            {"predict": [prediction_to_json(one) for one in pipeline.predict]}
            if pipeline.predict
            else {}
        ),
        **({"code_version": pipeline.code_version} if pipeline.has_code else {}),
        # Omit the key without a value, as before the key existed.
        **({} if pipeline.filter is None else {"filter": pipeline.filter}),
        **_reported_to_json(pipeline.reported),
        **_limit_to_json(pipeline.dead_letter_limit),
        **monitoring_to_json(pipeline.monitor),
        "outputs": [_output_to_json(output) for output in pipeline.outputs],
    }


def definition_hash(pipeline: Pipeline) -> str:
    """Return 64 hex digits, equal for equal pipelines in every process and release."""
    definition = pipeline_definition_json(pipeline)
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_json(definition: Mapping[str, Any]) -> Pipeline:
    """Build the pipeline that ``pipeline_definition_json`` described.

    Raises:
        PipelineError: This release refuses what an older one accepted.
        ValueError: Another format, not made by ``pipeline_definition_json``, or a
            pipeline with functions, for which the ledger has only the version.
    """
    if definition.get("format") != FORMAT:
        raise ValueError(
            f"a pipeline in format {definition.get('format')!r}, expected {FORMAT}"
        )
    if "code_version" in definition:
        raise ValueError("a pipeline with functions, which a ledger does not hold")
    source = definition["source"]
    event_id = source["event_id"]
    deduplicate = definition["deduplicate"]
    return Pipeline(
        name=definition["name"],
        source=Source(
            topic=_one_or_more(source["topic"]),
            schema=_one_or_more(source["schema"]),
            event_id=(
                HeaderId(header=event_id["header"])
                if "header" in event_id
                else event_id["field"]
            ),
            event_time=source["event_time"],
            watermark_delay=parse_duration(source["watermark_delay"]),
            idle_timeout=parse_duration(source["idle_timeout"]),
            future_bound=parse_duration(source["future_bound"]),
            past_bound=(
                parse_duration(source["past_bound"]) if "past_bound" in source else None
            ),
        ),
        guarantee=Guarantee(definition.get("guarantee", Guarantee.EXACTLY_ONCE)),
        deduplicate=(
            Deduplicate(
                horizon=parse_duration(deduplicate["horizon"]),
                conflicts=deduplicate["conflicts"],
                false_positives=deduplicate.get("false_positives", FALSE_POSITIVES),
            )
            if deduplicate is not None
            else None
        ),
        validate=tuple(Rule(**rule) for rule in definition["validate"]),
        enrich=tuple(enrichment_from_json(one) for one in definition["enrich"]),
        predict=tuple(
            prediction_from_json(one) for one in definition.get("predict", ())
        ),
        filter=definition.get("filter"),
        reported=Reported(**definition.get("reported", {})),
        dead_letter_limit=(
            DeadLetterLimit(**definition["dead_letter_limit"])
            if "dead_letter_limit" in definition
            else None
        ),
        monitor=monitoring_from_json(definition),
        outputs=tuple(_output_from_json(one) for one in definition["outputs"]),
    )


def _reported_to_json(reported: Reported) -> dict[str, Any]:
    if not reported.columns:
        return {}
    counters, distributions = reported.counters, reported.distributions
    written = {"counters": dict(counters), "distributions": dict(distributions)}
    return {"reported": written}


def _limit_to_json(limit: DeadLetterLimit | None) -> dict[str, Any]:
    if limit is None:
        return {}
    written = {"share": limit.share, "records": limit.records}
    return {"dead_letter_limit": written}


def source_topic_json(source: Source) -> str | list[str]:
    """Return a source's topic; a list if there are several, as in pipeline files."""
    return _as_written(source.topics)


def source_schema_json(source: Source) -> str | list[str]:
    """Return a source's contract; a list if there are several, like its topic."""
    return _as_written(source.schemas)


def _as_written(names: tuple[str, ...]) -> str | list[str]:
    first, *others = names
    return [first, *others] if others else first


def _one_or_more(written: str | list[str]) -> str | tuple[str, ...]:
    return written if isinstance(written, str) else tuple(written)


def _output_to_json(output: Output) -> dict[str, Any]:
    described = OUTPUT_TO_JSON[type(output)](output)
    where = output.conditions.get(("where",))
    return described if where is None else {**described, "where": where}


def _append_to_json(output: AppendOutput) -> dict[str, Any]:
    return {
        "kind": "append",
        "table": output.table,
        "columns": None if output.columns is None else list(output.columns),
        **place_to_json(output),
        **({"branches": output.branches} if output.branches > 1 else {}),
    }


def _outbox_to_json(output: OutboxOutput) -> dict[str, Any]:
    return {
        "kind": "outbox",
        # As the ledger calls it, for readers that tell outputs apart by it.
        "table": output.table,
        "topic": output.topic,
        "key": output.key,
        "select": None if output.select is None else list(output.select),
    }


#: How each kind is written, by its class.
OUTPUT_TO_JSON: dict[type[Output], Callable[[Any], dict[str, Any]]] = {
    AppendOutput: _append_to_json,
    JoinOutput: join_to_json,
    OutboxOutput: _outbox_to_json,
    StatefulOutput: stateful_to_json,
    WindowOutput: window_to_json,
}


def _output_from_json(definition: Mapping[str, Any]) -> Output:
    return OUTPUT_FROM_JSON[definition["kind"]](definition)


def _append_from_json(definition: Mapping[str, Any]) -> AppendOutput:
    columns = definition["columns"]
    return AppendOutput(
        table=definition["table"],
        columns=None if columns is None else tuple(columns),
        databases=tuple(definition.get("databases", (HOME,))),
        shard_by=tuple(definition.get("shard_by", ())),
        branches=definition.get("branches", 1),
        where=definition.get("where"),
    )


def _outbox_from_json(definition: Mapping[str, Any]) -> OutboxOutput:
    select = definition["select"]
    return OutboxOutput(
        topic=definition["topic"],
        key=definition["key"],
        select=None if select is None else tuple(select),
        where=definition.get("where"),
    )


#: How each kind is read, by its name. A ledger holds no functions with state.
OUTPUT_FROM_JSON: dict[str, Callable[[Mapping[str, Any]], Output]] = {
    "append": _append_from_json,
    "window": window_from_json,
    "outbox": _outbox_from_json,
    "join": join_from_json,
}
