"""Arguments and options that mean the same in several commands."""

from __future__ import annotations

from typing import Annotated

import typer

PipelineName = Annotated[
    str, typer.Argument(help="Name of a pipeline, or its YAML file.")
]
Reason = Annotated[str, typer.Option(help="Why; the ledger keeps it.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on one line.")
]
EndsWithJson = Annotated[
    bool, typer.Option("--json", help="End with one line of JSON.")
]
Once = Annotated[bool, typer.Option("--once", help="Do one round and end.")]
