"""``wait-for``: returns when readers see a record that a producer has sent.

It is for tests, and for programs that must read what they have just written: the
producer knows topic, partition and offset of its record from Kafka's acknowledgement.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import PipelineName, connected_home, pipeline_name
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition

_POLL_S = 0.05


@command(
    "tallyweir wait-for departures flights 0 41",
    "tallyweir wait-for departures flights 0 41 --timeout 5",
    name="wait-for",
)
def wait_for(
    pipeline: PipelineName,
    topic: Annotated[str, typer.Argument(help="A topic that the pipeline reads.")],
    partition: Annotated[int, typer.Argument(min=0)],
    offset: Annotated[int, typer.Argument(min=0, help="The last record to wait for.")],
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Longest time to wait.")
    ] = 60.0,
) -> None:
    """Wait until everything of a partition through an offset is visible.

    Visible means committed in every database of the pipeline, whatever became of the
    record; `why` tells what. With --timeout 0 it only looks. Exit code 75 when the
    time is over: the same call may be made again.
    """
    from tallyweir.sinks.postgres import audit

    name = pipeline_name(pipeline)
    place = TopicPartition(topic, partition)
    began = time.monotonic()
    with connected_home("wait-for") as home:
        while not audit.is_visible(home, name, place, offset):
            if time.monotonic() - began >= timeout:
                raise _not_visible_yet(name, place, offset, timeout)
            time.sleep(_POLL_S)
    say(f"{place} is visible through offset {offset:,}.")


def _not_visible_yet(
    pipeline: str, place: TopicPartition, offset: int, timeout: float
) -> RetryableError:
    return RetryableError(
        "NOT_VISIBLE_YET",
        saw=f"After {timeout:g} s offset {offset:,} of {place} is not visible through "
        f"pipeline {pipeline}.",
        why="The record is not in Kafka yet, or the pipeline is stopped, stalled or "
        "behind.",
        fix=f"Wait longer; tallyweir status {pipeline} shows which.",
    )
