"""``plan``, ``update``, ``rollback`` and ``versions``: manage a pipeline's versions.

Crash:
    An update and a rollback are one commit each. If the command dies before the commit,
    nothing has changed. If it dies after the commit, the next call reports that it is
    done.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import PipelineName, Reason, connected_home
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import UNCHANGED, note, say, say_json

if TYPE_CHECKING:
    from tallyweir.services.operate.spark_process import DescribedFile
    from tallyweir.sinks.postgres.steering.version_change import Changed

_File = Annotated[Path, typer.Argument(help="The new pipeline file.")]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Do everything, then undo it.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]

_EXIT_CODES = {"compatible": 0, "needs migration": 1, "incompatible": 78}


@command("tallyweir plan departures.yaml")
def plan(file: _File, as_json: _Json = False) -> None:
    """Say what becomes of a pipeline if this file is to follow what runs; do nothing.

    Exit code 0: compatible, starting it will do. 1: it needs a migration, which
    `update` does. 78: it cannot follow; each reason names the way out.
    """
    from tallyweir.services.cli.pipelines.plan_report import say_plan
    from tallyweir.sinks.postgres import steering

    described = _describe(file)
    with connected_home("plan") as home:
        made = steering.plan_update(home, described.pipeline, described.version)
    if as_json:
        say_json(made.to_json())
    else:
        say_plan(made)
    raise typer.Exit(_EXIT_CODES[made.verdict.value])


@command("tallyweir update departures.yaml --reason 'delays by airline' --watch 20")
def update(
    file: _File,
    reason: Reason,
    dry_run: _DryRun = False,
    watch: Annotated[
        int, typer.Option(min=0, help="Roll back if the first N batches are worse.")
    ] = 0,
) -> None:
    """Let this file's version come into force: state, tables and definition at once.

    A driver at work is fenced, drops the batch at hand whole, and ends unless it runs
    this very version: start it with the new file.
    """
    from tallyweir.sinks.postgres import steering

    described = _describe(file)
    request = steering.ChangeRequest(
        pipeline=described.pipeline,
        reason=reason,
        dry_run=dry_run,
        watched_batches=watch,
    )
    with connected_home("update") as home:
        changed = steering.update(home, request, described.version)
    _say_changed(changed, f"Start it with: tallyweir run {file}", dry_run=dry_run)


@command("tallyweir rollback departures 3 --reason 'delays are wrong'")
def rollback(
    pipeline: PipelineName,
    version: Annotated[int, typer.Argument(help="The version to go back to.")],
    reason: Reason,
    dry_run: _DryRun = False,
) -> None:
    """Let a former version come into force again, with all that is kept since."""
    from tallyweir.services.cli.arguments import pipeline_name
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    request = steering.ChangeRequest(pipeline=name, reason=reason, dry_run=dry_run)
    with connected_home("rollback") as home:
        changed = steering.rollback(home, request, version)
    _say_changed(
        changed,
        f"Start it with the file of version {version}; where it was YAML, "
        f"tallyweir versions {name} --show {version} prints it.",
        dry_run=dry_run,
    )


@command("tallyweir versions departures", "tallyweir versions departures --show 2")
def versions(
    pipeline: PipelineName,
    show: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Print the file of this version."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """List a pipeline's versions, the newest first: that one is in force."""
    from tallyweir.services.cli.arguments import pipeline_name
    from tallyweir.services.cli.pipelines.plan_report import say_versions
    from tallyweir.services.operate.steering.versions_json import versions_json
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    with connected_home("versions") as home:
        if show is not None:
            one = steering.read_version(home, name, show)
            if one.file_text is None:
                note(
                    "It was not a YAML file, or it ran before Tallyweir kept versions:"
                )
                say_json(one.definition)
            else:
                say(one.file_text.rstrip("\n"))
            return
        listed = steering.list_versions(home, name)
    if as_json:
        say_json({"pipeline": name, "versions": versions_json(listed)})
    else:
        say_versions(listed)


def _describe(file: Path) -> DescribedFile:
    from tallyweir.services.operate.spark_process import describe_file
    from tallyweir.services.process.endpoints import child_environment, find_endpoints

    described = describe_file(file, child_environment(find_endpoints()))
    if isinstance(described, int):
        # The process has already reported the problem.
        raise typer.Exit(described)
    return described


def _say_changed(changed: Changed, then: str, *, dry_run: bool) -> None:
    from tallyweir.services.cli.pipelines.plan_report import say_plan

    say_plan(changed.plan)
    if dry_run:
        say(f"It could be version {changed.version}. {UNCHANGED}")
        return
    say(
        f"Version {changed.version} of {changed.plan.pipeline} is in force after "
        f"batch {changed.after_sequence}. {then}"
    )
