"""Checks of the columns that parts of a pipeline name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tallyweir.schemas.contract import ContractField
from tallyweir.schemas.pipeline.checks.names import KAFKA_TOPIC
from tallyweir.schemas.pipeline.checks.problems import Path, Problem, StandIn, suggest
from tallyweir.schemas.pipeline.expressions.expressions import (
    find_mistyped,
    find_unknown_columns,
)
from tallyweir.schemas.schema_tree import NESTED_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumns:
    """The columns of events, as far as a part of the pipeline sees them.

    Attributes:
        names: All of them, in order.
        fields: Those of the contracts.
    """

    names: Sequence[str]
    fields: Sequence[ContractField]

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the fields; what is added has a type for Spark only."""
        return {field.name: field.type for field in self.fields}

    def check_expression(self, text: str | None) -> Iterator[Problem]:
        """Find columns that an expression reads and that are not there, or misfit."""
        if text is not None:
            yield from find_unknown_columns(text, [*self.names, KAFKA_TOPIC])
            yield from find_mistyped(text, self.types)

    def check_all(self, columns: Sequence[str] | None, key: str) -> Iterator[Problem]:
        """Find those of a list that are not there."""
        for index, column in enumerate(columns or ()):
            yield from check_known(column, self.names, (key, index))

    def check_simple(
        self, column: str, at: Path, *, why: str, fix: str
    ) -> Iterator[Problem]:
        """Refuse a field that is an array, a map or a record."""
        kind = self.types.get(column)
        if kind in NESTED_TYPES:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=at,
                saw=f"The field {column!r} is of type {kind}.",
                why=why,
                fix=fix,
            )


def check_new(column: str, known: Iterable[str], at: Path) -> Iterator[Problem]:
    """Refuse a column that the events have already."""
    if column.casefold() in {name.casefold() for name in known}:
        yield Problem(
            code="PIPELINE_DUPLICATE_NAME",
            at=at,
            saw=f"The pipeline would create a column {column!r}.",
            why="The events already have a column of that name; names ignore case.",
            fix="Choose another name.",
        )


def check_known(column: str, known: Iterable[str], at: Path) -> Iterator[Problem]:
    """Refuse a column that the events do not have."""
    if column not in known and not isinstance(column, StandIn):
        yield Problem(
            code="PIPELINE_UNKNOWN_COLUMN",
            at=at,
            saw=f"There is no column {column!r}.",
            why="The events do not have it.",
            fix=suggest(column, known),
        )
