"""The key of a source's records, where it is more than bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field

from tallyweir.schemas.contract import DeclaredFields
from tallyweir.schemas.formats.known_formats import format_of
from tallyweir.schemas.formats.plain_format import PLAIN_TYPES
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.document.file_keys import Keys, Pairs, Text

_JSON = "json"
_AVRO = "avro"
_PROTOBUF = "protobuf"
#: The attribute that says the columns, by the format.
_DECLARED_BY: Mapping[str, str | None] = {
    **dict.fromkeys(PLAIN_TYPES),
    _JSON: "fields",
    _AVRO: "schema",
    _PROTOBUF: "schema",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKey:
    """How the keys of records are written; events get the columns that they hold.

    Attributes:
        format: ``text`` or ``bigint`` for the column ``key``; ``json``, ``avro`` or
            ``protobuf`` for a column ``key_FIELD`` for each field.
        fields: For JSON, the path of each field to its Postgres type, as in ``Source``.
        schema: For Avro and Protobuf, the contract of the keys, as in ``Source``.
    """

    format: str
    fields: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def __post_init__(self) -> None:
        raise_if_any("SourceKey", self._find_problems())

    @property
    def reference(self) -> str:
        """The contract of the keys, as ``load_key_contracts`` takes it."""
        if self.format in PLAIN_TYPES:
            return self.format
        if self.format == _JSON:
            return DeclaredFields(fields=self.fields, unknown="ignore").reference
        return self.schema or ""

    def _find_problems(self) -> Iterator[Problem]:
        if self.format not in _DECLARED_BY:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("format",),
                saw=f"The format of the key is {self.format!r}.",
                why="Keys are read in the formats that are known.",
                fix=f"Write one of {', '.join(_DECLARED_BY)}.",
            )
            return
        wanted = _DECLARED_BY[self.format]
        for name, given in (("fields", self.fields), ("schema", self.schema)):
            if name == wanted and not given:
                yield Problem(
                    code="PIPELINE_MISSING_KEY",
                    at=(name,),
                    saw=f"The key is in the format {self.format}, without {name}.",
                    why="Nothing else says which columns the key has.",
                    fix=f"Add {name} to key, as source has it.",
                )
            elif name != wanted and given:
                yield Problem(
                    code="PIPELINE_VALUE",
                    at=(name,),
                    saw=f"The key has {name}, and the format {self.format}.",
                    why=f"A key in this format has no {name}.",
                    fix=f"Remove {name}, or write another format.",
                )

        written_in = format_of(self.schema) if self.schema else None
        if written_in is not None and written_in.has_parts != (
            self.format == _PROTOBUF
        ):
            yield Problem(
                code="PIPELINE_VALUE",
                at=("schema",),
                saw=f"The schema of the key is {self.schema!r:.80}, and its format "
                f"{self.format}.",
                why="A message of a .proto or .pb file is the contract of Protobuf's "
                "values, and of no others.",
                fix="Write FILE.proto#MESSAGE with format: protobuf.",
            )


class SourceKeyKeys(Keys[SourceKey]):
    """The keys of ``key``."""

    part = SourceKey
    stand_ins: ClassVar[Mapping[str, object]] = {"format": "text"}

    format: Text
    fields: Pairs = Field(default={})
    schema_: Text | None = None
