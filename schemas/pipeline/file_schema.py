"""The JSON Schema of pipeline files, by which editors complete and check them."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tallyweir.schemas.pipeline.document.file_keys import Keys
from tallyweir.schemas.pipeline.pipeline_keys import PipelineKeys
from tallyweir.sinks.protocol.durations import format_duration

#: Where the schema is kept, beside the pipeline files.
SCHEMA_FILE = "pipeline.schema.json"

_ATTRIBUTE = re.compile(
    r"^    (\w+): (.+?)(?=^    \w|^\S|\Z)", re.MULTILINE | re.DOTALL
)


class _FileSchema(GenerateJsonSchema):
    """Describes keys as files have them, in the words of the parts that they become."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Describe a key that may be left out, but not be empty."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        default = schema.get("default")
        if isinstance(default, timedelta):
            return {**inner, "default": format_duration(default)}
        return inner if default is None else super().default_schema(schema)

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        keys = schema["cls"]
        del described["title"]
        if not issubclass(keys, Keys):
            return described
        text = inspect.getdoc(keys.part) or ""
        described["description"] = text.partition("\n")[0]
        for name, told in _ATTRIBUTE.findall(text):
            field = keys.model_fields.get(name) or keys.model_fields.get(f"{name}_")
            if field is not None:
                one = described["properties"][field.alias]
                one["description"] = " ".join(told.split())
        return described


def editor_line(folder: Path) -> str:
    """Return the line by which editors find the schema, for a pipeline file's top.

    Args:
        folder: Where the file goes. If the schema is not there, the line is empty.
    """
    if not (folder / SCHEMA_FILE).is_file():
        return ""
    return f"# yaml-language-server: $schema={SCHEMA_FILE}\n"


def pipeline_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of pipeline files, in draft 2020-12.

    It knows keys, types and words. Only ``load_pipeline`` knows what names, SQL and
    contracts must be.
    """
    described = PipelineKeys.model_json_schema(schema_generator=_FileSchema)
    return {"$schema": _FileSchema.schema_dialect, **described}
