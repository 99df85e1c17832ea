"""``templates``: lists, writes and runs ready pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.rendering import example, note, say, say_table

if TYPE_CHECKING:
    from tallyweir.services.local.templates.template import Template

#: Partitions of a topic that ``run`` makes.
_PARTITIONS = 4

_Name = Annotated[str, typer.Argument(help="Template, as `templates list` shows it.")]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Sets a parameter; repeatable."),
]


GROUP = typer.Typer(
    name="templates",
    help="Ready-made pipelines.",
    no_args_is_help=True,
    epilog=example(
        "tallyweir templates list",
        "tallyweir templates init page-views --directory pipelines",
        "tallyweir templates run page-views",
    ),
)


@GROUP.command("list")
def list_templates() -> None:
    """List the templates."""
    from tallyweir.services.local.templates.template import (
        read_template,
        template_names,
    )

    rows = [(name, read_template(name).title) for name in template_names()]
    say_table(("template", "what it does"), rows)


@GROUP.command(epilog=example("tallyweir templates show page-views"))
def show(name: _Name, settings: _Set = None) -> None:
    """Show a template's parameters and its pipeline file."""
    from tallyweir.services.local.templates.template import (
        parse_settings,
        read_template,
    )

    template = read_template(name)
    text = template.render(parse_settings(settings or []))
    say(f"{template.title}\n")
    say_table(
        ("parameter", "type", "default", "what it is"),
        [(p.name, p.type, p.default, p.help) for p in template.parameters],
    )
    say("")
    say(text.rstrip())


@GROUP.command(
    epilog=example(
        "tallyweir templates init page-views",
        "tallyweir templates init page-views --set topic=views "
        '--set window="5 minutes" --directory pipelines',
    )
)
def init(
    name: _Name,
    settings: _Set = None,
    directory: Annotated[
        Path, typer.Option(help="Target directory; created if missing.")
    ] = Path(),
) -> None:
    """Write a template's files, with parameters set, for you to change and keep.

    Files that are there already are left alone, which is an error.
    """
    from tallyweir.services.local.templates.template import read_template

    template = read_template(name)
    for path in _write(template, settings, directory, replace=False):
        say(str(path))


@GROUP.command(epilog=example("tallyweir templates run page-views --once"))
def run(
    name: _Name,
    settings: _Set = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end of the topic.")
    ] = False,
) -> None:
    """Run a template as it is: makes its topic and lookup tables where missing.

    Its tables of results are made as those of every pipeline. To change it, write it
    out with `templates init` and run the file.
    """
    from tallyweir.services.cli.pipelines.run import run as run_pipeline
    from tallyweir.services.kafka.topics import create_if_missing
    from tallyweir.services.local.embedded.state_directory import state_directory
    from tallyweir.services.local.templates.lookup_tables import make_tables
    from tallyweir.services.local.templates.template import read_template
    from tallyweir.services.process.endpoints import resolve_endpoints
    from tallyweir.services.produce.source_section import read_source_section

    directory = state_directory() / "templates" / name
    template = read_template(name)
    pipeline_file, *_ = _write(template, settings, directory, replace=True)
    endpoints = resolve_endpoints()
    topics = read_source_section(pipeline_file).topics
    for topic in topics:
        create_if_missing(endpoints.kafka_bootstrap, topic, partitions=_PARTITIONS)
    make_tables(endpoints.home_dsn, template)
    note(
        f"{pipeline_file} reads {', '.join(topics)}; "
        f"`tallyweir emit --template {name}` fills it"
    )
    run_pipeline(pipeline_file, once=once)


def _write(
    template: Template, settings: list[str] | None, directory: Path, *, replace: bool
) -> list[Path]:
    from tallyweir.schemas.pipeline.file_schema import editor_line
    from tallyweir.services.local.templates.template import parse_settings, write_files

    files = template.files(parse_settings(settings or []))
    if template.file.suffix == ".yaml":
        line = editor_line(directory).encode()
        files[template.file.name] = line + files[template.file.name]
    return write_files(directory, files, replace=replace)
