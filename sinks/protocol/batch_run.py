"""Batch runs: bounded inputs, each published as one batch, once by the run's name.

The inputs of a run are partitions of a topic of its own, with a name that no Kafka
topic can have. The ledger keeps its positions like Kafka's, so a replay is noticed in
the same way. But the positions are no part of the stream: no driver resumes from them,
and their partition clocks end with the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition, is_kafka_topic

#: Kafka allows no colon in a topic's name.
_PREFIX = "batch:"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NAME_SHOWN = 100
#: Inputs that an error names.
_SHOWN = 5

_Held = TypeVar("_Held")


class Disposition(Enum):
    """What a run does with the rows that the pipeline's tables already hold."""

    APPEND = "append"
    #: The transaction that adds the run's rows deletes the earlier ones, and with them
    #: all that the pipeline remembers: seen IDs, windows and watermark.
    TRUNCATE = "truncate"
    #: Rows stay unless an event of the run corrects them. An event with the ID of a
    #: committed event and another payload replaces that event's rows.
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """One input of a run.

    Attributes:
        partition: Its number in the topic of the run: a file's place among the files,
            a Kafka partition's own.
        name: Name for people: the file's name, or a topic's partition and range.
        checksum: Differs if the content differs.
    """

    partition: int
    name: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """A run, as the operator asked for it.

    Raises:
        ConfigurationError: ``RUN_NAME_INVALID``.
    """

    name: str
    inputs: tuple[RunInput, ...]
    disposition: Disposition = Disposition.APPEND

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                "RUN_NAME_INVALID",
                saw=f"The run is called {self.name[:_NAME_SHOWN]!r}.",
                why="The ledger and every row store the name.",
                fix="Use up to 100 letters, digits, dots, underscores and hyphens.",
            )

    @property
    def topic(self) -> str:
        """The topic that its positions are noted under."""
        return run_topic(self.name)

    @property
    def replaces(self) -> bool:
        """Whether the run starts from nothing, as if it were the pipeline's first."""
        return self.disposition is Disposition.TRUNCATE

    @property
    def corrects(self) -> bool:
        """Whether another payload under a known ID is a correction, not a conflict."""
        return self.disposition is Disposition.UPSERT

    def is_done(self, recorded: BatchRun | None) -> bool:
        """Tell whether the run was published already.

        Args:
            recorded: The run of this name in the ledger; None if there is no such run.

        Raises:
            ConfigurationError: ``RUN_NAME_TAKEN``: it was published with other input,
                or in another way.
        """
        if recorded is None:
            return False
        if recorded != self:
            raise ConfigurationError(
                "RUN_NAME_TAKEN",
                saw=f"Run {self.name} was published to {recorded.work}; this call "
                f"asks it to {self.work}.",
                why="Each run name is published once, so that a repeated run changes "
                "nothing; different work under the same name would be skipped "
                "silently.",
                fix="Give the new work its own run name.",
            )
        return True

    @property
    def work(self) -> str:
        """Its disposition and inputs, in words."""
        shown = ", ".join(
            f"{one.name} ({one.checksum[:12]})" for one in self.inputs[:_SHOWN]
        )
        more = f" and {len(self.inputs) - _SHOWN} more" if self.inputs[_SHOWN:] else ""
        return f"{self.disposition.value} {shown}{more}"


def run_topic(run: str) -> str:
    """Return the topic that the positions of a run are noted under."""
    return f"{_PREFIX}{run}"


def is_run_topic(topic: str) -> bool:
    """Tell the topic of a run from Kafka's topics."""
    return topic.startswith(_PREFIX)


def streamed(
    by_partition: Mapping[TopicPartition, _Held],
) -> dict[TopicPartition, _Held]:
    """Leave out what belongs to batch runs, and to topics that no longer exist."""
    return {
        topic_partition: held
        for topic_partition, held in by_partition.items()
        if is_kafka_topic(topic_partition.topic)
    }
