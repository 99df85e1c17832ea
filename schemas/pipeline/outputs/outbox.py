"""Outputs that are Kafka topics: the relay sends messages once a batch is decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tallyweir.schemas.pipeline.checks.databases import InHome
from tallyweir.schemas.pipeline.checks.names import (
    check_column,
    check_distinct,
    check_output_column,
    check_selected_column,
    check_topic,
)
from tallyweir.schemas.pipeline.checks.problems import Problem, StandIn, raise_if_any
from tallyweir.schemas.pipeline.document.file_keys import (
    Condition,
    Keys,
    Text,
    Texts,
    unnamed,
)
from tallyweir.schemas.pipeline.expressions.expressions import check_condition
from tallyweir.schemas.pipeline.outputs.pipeline_output import (
    KnownColumns,
    Output,
    check_known,
)
from tallyweir.sinks.protocol.column_names import stored_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox(InHome, Output):
    """One message for each event, written to the home's outbox with the results.

    Attributes:
        topic: Topic of the messages; made when missing.
        key: Column whose value becomes the key of the message.
        select: Columns of the message; None for all that the event has.
        where: As in ``Append``.
    """

    kind: ClassVar[str] = "outbox"
    has_table: ClassVar[bool] = False
    unrepeatable: ClassVar[tuple[str, str]] = (
        "sends messages",
        "The relay sends them after the transaction that publishes them, once each.",
    )

    topic: str
    key: str
    select: tuple[str, ...] | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        raise_if_any("Outbox", self._find_problems())

    @property
    def table(self) -> str:
        """The output's name in the ledger, which no table can have."""
        return f"outbox:{self.topic}"

    @property
    def sends_to(self) -> str:
        return self.topic

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.key, *(self.select or ()))

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        if self.select is not None:
            yield from known.check_all(self.select, "select")
        else:
            for column in known.names:
                yield from check_output_column(column, ())
        if isinstance(self.key, StandIn):
            return
        yield from check_known(self.key, known.usable, ("key",))
        yield from known.check_simple(
            self.key,
            ("key",),
            why="A key must be one simple value.",
            fix="Choose another field.",
        )

    def _find_problems(self) -> Iterator[Problem]:
        for problem in check_condition(self.where):
            yield problem.under("where")
        yield from check_topic(self.topic, ("topic",))
        yield from check_column(stored_name(self.key), ("key",))
        if self.select is None:
            return
        if not self.select:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("select",),
                saw="select is empty.",
                why="The messages would be empty.",
                fix="Name columns, or leave it out for all of them.",
            )
        stored = list(map(stored_name, self.select))
        for index, column in enumerate(self.select):
            yield from check_selected_column(column, ("select", index))
        yield from check_distinct(stored, "columns", ("select",))


class OutboxKeys(Keys[Outbox]):
    """The keys of ``outbox``."""

    part = Outbox
    stand_ins: ClassVar[Mapping[str, object]] = {
        "topic": unnamed,
        "key": StandIn("unnamed"),
    }

    topic: Text
    key: Text
    select: Texts | None = None
    where: Condition | None = None
