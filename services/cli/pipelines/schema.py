"""``schema``: prints the JSON Schema of pipeline files, for editors."""

from __future__ import annotations

import json

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say


@command("tallyweir schema > pipeline.schema.json")
def schema() -> None:
    """Print the JSON Schema of pipeline files, by which an editor checks them."""
    from tallyweir.schemas.pipeline.file_schema import pipeline_file_schema

    say(json.dumps(pipeline_file_schema(), indent=2))
