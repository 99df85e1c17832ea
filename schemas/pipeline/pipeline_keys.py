"""The keys of a pipeline file, and the pipeline that they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from operator import add
from typing import Annotated, Any, ClassVar

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    create_model,
)

from tallyweir.schemas.pipeline.checks.problems import Path, Problem
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.document.file_keys import (
    Computed,
    Condition,
    Expressions,
    Given,
    Info,
    Keys,
    Part,
    Parts,
    Text,
    is_off,
    one_by_one,
    reject,
    word,
)
from tallyweir.schemas.pipeline.document.yaml_tree import Report, YamlScalar
from tallyweir.schemas.pipeline.events.deduplicate import Deduplicate, DeduplicateKeys
from tallyweir.schemas.pipeline.events.enrichment import EnrichmentKeys
from tallyweir.schemas.pipeline.events.monitoring import Monitoring, MonitoringKeys
from tallyweir.schemas.pipeline.events.prediction import PredictionKeys
from tallyweir.schemas.pipeline.events.source import PositionId, SourceKeys
from tallyweir.schemas.pipeline.events.validation import DeadLetterLimitKeys, Rule
from tallyweir.schemas.pipeline.outputs.append import Append, AppendKeys
from tallyweir.schemas.pipeline.outputs.join import JoinKeys
from tallyweir.schemas.pipeline.outputs.outbox import OutboxKeys
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.outputs.window import WindowKeys
from tallyweir.sinks.protocol.guarantee import Guarantee

#: Stands in for outputs that are wrong, so that the rest can be checked as well.
_NO_OUTPUT = (Append(table="unnamed"),)

#: The keys of each kind of output; a kind of Python pipelines only has none.
_KINDS: Mapping[str, type[Keys[Any]]] = {
    keys.part.kind: keys for keys in (AppendKeys, WindowKeys, OutboxKeys, JoinKeys)
}


class _KindChoice(Keys[Output]):
    """The key of an output: its kind."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "maxProperties": 1}
    )

    part = Output

    stand_ins: ClassVar[Mapping[str, object]] = dict.fromkeys(_KINDS)

    def choose(self, report: Report, at: Path) -> tuple[Keys[Output], Path] | None:
        """Return the keys of its kind, and their path; None if they are wrong."""
        known = type(self).model_fields
        kinds = [kind for kind in known if kind in self.model_fields_set]
        if len(kinds) != 1:
            seen = " and ".join(kinds)
            report.add(
                Problem(
                    code="PIPELINE_VALUE",
                    at=at,
                    saw=f"The output is both {seen}."
                    if kinds
                    else f"The output is none of {', '.join(known)}.",
                    why="Each output writes one table or one topic.",
                    fix="Write - append: {table: ...} or - window: {table: ...}, a "
                    "line for each.",
                )
            )
            return None
        keys: Keys[Output] | None = getattr(self, kinds[0])
        return None if keys is None else (keys, (*at, kinds[0]))


_FIELDS: dict[str, Any] = {kind: (keys | None, None) for kind, keys in _KINDS.items()}
OutputKeys = create_model("OutputKeys", __base__=_KindChoice, **_FIELDS)


def _kind_of_deduplicate(value: Given) -> str:
    return "off" if is_off(value) else "keys"


def _conninfo(value: Given, info: Info) -> str:
    if isinstance(value, YamlScalar) and value.kind in {"str", "null"}:
        return value.text if value.kind == "str" else ""
    raise reject(
        value,
        info.context,
        f"The connection string of {value.at[-1]!r} is not text.",
        "libpq needs a text.",
        "Write host=... dbname=..., or leave it empty if the environment sets it.",
    )


_Off = Annotated[
    None, PlainValidator(lambda _: None), WithJsonSchema({"enum": ["off", False]})
]
_Conninfo = Annotated[
    str, PlainValidator(_conninfo), WithJsonSchema({"type": ["string", "null"]})
]


class PipelineKeys(Keys[Pipeline]):
    """The keys of a pipeline file."""

    part = Pipeline

    stand_ins: ClassVar[Mapping[str, object]] = {
        "pipeline": "unnamed",
        "source": SourceKeys.unknown(),
        "enrich": (None,),
        "predict": (None,),
        "outputs": (),
    }

    name: Text = Field(alias="pipeline")
    source: SourceKeys
    guarantee: Annotated[Guarantee, word(Guarantee)] = Guarantee.EXACTLY_ONCE
    deduplicate: Annotated[
        Annotated[_Off, Tag("off")] | Annotated[DeduplicateKeys, Tag("keys")],
        Discriminator(_kind_of_deduplicate),
    ] = None
    compute: Computed = Field(default={})
    validate_: Expressions = Field(default={})
    enrich: Parts[EnrichmentKeys] = ()
    predict: Parts[PredictionKeys] = ()
    filter: Condition | None = None
    dead_letter_limit: DeadLetterLimitKeys | None = None
    monitor: MonitoringKeys | None = None
    databases: Annotated[dict[str, _Conninfo], one_by_one()] = Field(default={})
    outputs: Parts[OutputKeys]

    def build_placed(self, report: Report) -> tuple[Pipeline, Callable[[Path], Path]]:
        """Build the pipeline, and report what is wrong with it.

        A lookup or a model that is wrong adds unknown columns, as a transform does, so
        a transform stands in for it and for those after it.

        Returns:
            The pipeline, and what turns a path in it into the path in the file.
        """
        chosen = [
            None if one is None else one.choose(report, ("outputs", index))
            for index, one in enumerate(self.outputs)
        ]
        outputs = [one for one in chosen if one is not None]

        def in_file(at: Path) -> Path:
            if at[:1] == ("outputs",) and at[1:] and outputs:
                keys, place = outputs[int(at[1])]
                return (*place, *keys.in_file(at[2:]))
            return self.in_file(at)

        lookups = _build_each(self.enrich, report, "enrich")
        models = _build_each(self.predict, report, "predict")
        is_known = None not in (*lookups, *models)
        limit, monitor = self.dead_letter_limit, self.monitor
        built = tuple(keys.build(report, place) for keys, place in outputs)
        with report.building(in_file):
            pipeline = Pipeline(
                name=self.name,
                source=self.source.build(report, ("source",)),
                guarantee=self.guarantee,
                deduplicate=self._build_deduplicate(report),
                compute=self.compute,
                validate=tuple(self._build_rules(report)),
                enrich=_until_wrong(lookups),
                transform=None if is_known else _unknown,
                predict=_until_wrong(models),
                filter=self.filter,
                dead_letter_limit=limit.build(report, ("dead_letter_limit",))
                if limit
                else None,
                monitor=monitor.build(report, ("monitor",))
                if monitor
                else Monitoring(),
                # An empty list is a problem of the pipeline.
                outputs=built or (_NO_OUTPUT if self.outputs else ()),
                databases=self.databases,
            )
        return pipeline, in_file

    def _build_deduplicate(self, report: Report) -> Deduplicate | None:
        if self.deduplicate is not None:
            return self.deduplicate.build(report, ("deduplicate",))
        is_absent = "deduplicate" not in self.model_fields_set
        can_repeat = not isinstance(self.source.event_id, PositionId)
        is_exact = self.guarantee is Guarantee.EXACTLY_ONCE
        is_wanted = is_absent and is_exact and can_repeat
        return Deduplicate() if is_wanted else None

    def _build_rules(self, report: Report) -> Iterator[Rule]:
        for code, condition in self.validate_.items():
            with report.building(partial(add, ("validate", code))):
                rule = Rule(reason_code=code, condition=condition)
            yield rule


def _build_each(
    parts: tuple[Keys[Part] | None, ...], report: Report, key: str
) -> tuple[Part | None, ...]:
    """Build all parts of a list that can be read, and report what is wrong in each."""
    return tuple(
        None if one is None else one.build(report, (key, index))
        for index, one in enumerate(parts)
    )


def _until_wrong(parts: tuple[Part | None, ...]) -> tuple[Part, ...]:
    found = takewhile(lambda one: one is not None, parts)
    return tuple(one for one in found if one is not None)


def _unknown(events: Any) -> Any:  # noqa: ANN401 - as users' transforms are
    """Stand in for unknown columns, after a part that is wrong."""
    raise NotImplementedError(events)
