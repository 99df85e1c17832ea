"""``notebook``: runs a slice through the pipeline, stage by stage, in Jupyter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say

_RECORDS = 1_000
_RECORDS_MAX = 100_000


_What = Annotated[
    Path,
    typer.Argument(
        metavar="PIPELINE",
        help="Pipeline file; or the directory of a slice, to open it again.",
    ),
]
_Records = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_RECORDS_MAX,
        help=f"The newest records of each partition, at most this many [{_RECORDS}].",
    ),
]
_Offsets = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC:PARTITION:FROM-UNTIL", help="A range instead."),
]
_Input = Annotated[
    list[Path] | None,
    typer.Option("--input", help="Read a file instead, as tallyweir batch does."),
]
_Run = Annotated[
    str | None,
    typer.Option(help="The batch run to compare rows of files with."),
]
_Output = Annotated[
    Path | None, typer.Option(help="Directory for the slice [NAME-notebook].")
]
_Open = Annotated[
    bool, typer.Option("--open/--no-open", help="Open the notebook in Jupyter.")
]


@command(
    "tallyweir notebook orders.yaml",
    "tallyweir notebook orders.yaml --offsets orders:0:1200-1500 --output look",
    "tallyweir notebook orders.yaml --input may.csv --run orders-may",
    "tallyweir notebook look",
)
def notebook(  # noqa: PLR0913, PLR0917 - each is an option
    what: _What,
    records: _Records = None,
    offsets: _Offsets = None,
    source: _Input = None,
    run: _Run = None,
    output: _Output = None,
    open_it: _Open = True,
) -> None:
    """Capture records of a pipeline's topic, and look at its stages in a notebook.

    The notebook runs the pipeline's own code on the slice: each stage by itself, then
    the whole batch with its publish transaction, into databases that are thrown away,
    and compares that with what the pipeline has committed. A driver may run meanwhile;
    it notices nothing.

    Jupyter is installed at the first use, in an environment of its own.
    """
    given = [one for one in (records, offsets, source) if one]
    if len(given) > 1 or (what.is_dir() and (given or output)):
        raise typer.BadParameter(
            "Give one of --records, --offsets and --input for a pipeline, and no "
            "such option for a directory."
        )
    from tallyweir.services.notebook.jupyter import (
        install_jupyter,
        jupyter_command,
        notebook_environment,
        write_notebook,
    )
    from tallyweir.services.process.endpoints import (
        child_environment,
        resolve_endpoints,
    )

    endpoints = resolve_endpoints()
    directory = what if what.is_dir() else output or Path(f"{what.stem}-notebook")
    if not what.is_dir():
        _capture(
            what,
            directory,
            [
                *(f"--offsets={one}" for one in offsets or ()),
                *(f"--input={path}" for path in source or ()),
                *([] if offsets or source else [f"--records={records or _RECORDS}"]),
                *([] if run is None else [f"--run={run}"]),
            ],
            child_environment(endpoints),
        )
    written = write_notebook(directory.absolute())
    say(f"{written}")
    if not open_it:
        return
    python = install_jupyter()
    command = jupyter_command(python, written)
    # Jupyter replaces this process, so that Ctrl-C reaches it directly.
    os.chdir(written.parent)
    os.execve(python, command, notebook_environment(endpoints))  # noqa: S606 - no shell


def _capture(
    pipeline: Path, directory: Path, which: Sequence[str], environment: dict[str, str]
) -> None:
    arguments = [
        sys.executable,
        "-m",
        "tallyweir.spark_jobs.notebook",
        str(pipeline),
        *which,
    ]
    arguments.append(f"--output={directory}")
    if "--debug" in sys.argv:
        arguments.append("--debug")
    code = subprocess.run(arguments, env=environment, check=False).returncode
    if code != 0:
        raise typer.Exit(code)
