"""``profile``: shows where a pipeline spends its time, as flame graphs."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import PipelineName, connected_home, pipeline_name
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say


@command(
    "tallyweir profile departures --seconds 30",
    "tallyweir profile departures --output .",
)
def profile(
    pipeline: PipelineName,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="For how long.")] = 30,
    output: Annotated[
        Path | None,
        typer.Option(help="Also write the graphs to files in this directory."),
    ] = None,
) -> None:
    """Sample a running driver on this host, its Python workers and its JVM.

    The flame graphs are kept in the home database, the newest five of each kind, and
    the monitor shows them on the pipeline's page. The pipeline goes on meanwhile, a
    little slower. Where there is no JDK, its JVM is left out. docs/profiling.md tells
    how to read them.
    """
    import tempfile

    from tallyweir.services.operate.profiling.driver_samples import (
        JvmRecording,
        find_driver,
        sample_python,
    )
    from tallyweir.services.operate.profiling.flame_graph import Stack, draw_flame_graph
    from tallyweir.sinks.postgres.audit import read_overview
    from tallyweir.sinks.postgres.records.profiles import (
        ProfileKind,
        TakenProfile,
        keep_profile,
    )

    name = pipeline_name(pipeline)
    with connected_home("profile") as home:
        driver = find_driver(read_overview(home), name)
    note(f"sampling process {driver.process_id} and its workers for {seconds} s")
    found: dict[ProfileKind, dict[Stack, int]] = {}
    with tempfile.TemporaryDirectory(prefix="tallyweir-profile-") as made:
        directory = Path(made)
        recording = None
        try:
            if driver.jvm is not None:
                recording = JvmRecording(driver.jvm, directory)
        except ValueError as error:
            note(f"the JVM is left out: {error}")
        found[ProfileKind.PYTHON] = sample_python(driver.process_id, seconds, directory)
        try:
            if recording is not None:
                found[ProfileKind.JVM] = recording.stop()
        except ValueError as error:
            note(f"the JVM is left out: {error}")
    with connected_home("profile") as home:
        for kind, stacks in found.items():
            title = f"{name}, epoch {driver.epoch}: {kind.value}, {seconds} s"
            taken = TakenProfile(
                pipeline=name,
                kind=kind,
                host=socket.gethostname(),
                epoch=driver.epoch,
                seconds=seconds,
                samples=sum(stacks.values()),
                svg=draw_flame_graph(title, stacks),
            )
            number = keep_profile(home, taken)
            where = f"profile {number} on the monitor's page"
            if output is not None:
                file = output / f"{name}-{kind.value}-{number}.svg"
                file.write_text(taken.svg, encoding="utf-8")
                where += f", {file}"
            say(f"{kind.value}: {taken.samples} samples, {where}")
