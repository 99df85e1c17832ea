"""``schema``: prints the JSON Schema of pipeline files, for editors."""

from __future__ import annotations

import json

import typer

from tallyweir.services.cli.rendering import example, say


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("schema", epilog=example("tallyweir schema > pipeline.schema.json"))(
        schema
    )


def schema() -> None:
    """Print the JSON Schema of pipeline files, by which an editor checks them."""
    from tallyweir.schemas.pipeline.file_schema import pipeline_file_schema

    say(json.dumps(pipeline_file_schema(), indent=2))
