"""Columns that are looked up for each event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from spark_jobs.pipeline.durations import check_duration
from spark_jobs.pipeline.names import check_column, check_output_column, check_table
from spark_jobs.pipeline.problems import Problem, empty_value, raise_if_any

REFRESH = timedelta(minutes=10)

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """Columns looked up in a Postgres table that fits into memory.

    Attributes:
        table: The lookup table.
        on: Event column to lookup column; all must be equal.
        select: New column to lookup column.
        default: New column to its value where nothing matches; else null.
        refresh: How old the copy of the table may become.
    """

    table: str
    on: Mapping[str, str]
    select: Mapping[str, str]
    default: Mapping[str, Scalar] = field(default_factory=dict)
    refresh: timedelta = REFRESH

    def __post_init__(self) -> None:
        raise_if_any("Enrichment", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_table(self.table, ("table",))
        for name, pairs in (("on", self.on), ("select", self.select)):
            if not pairs:
                yield empty_value((name,))
            for lookup in pairs.values():
                yield from check_column(lookup, (name,))
        for column in self.select:
            yield from check_output_column(column, ("select", column))
        for column in self.default:
            if column not in self.select:
                yield Problem(
                    code="PIPELINE_UNKNOWN_COLUMN",
                    at=("default", column),
                    saw=f"There is a default for {column!r}.",
                    why="A default is for a column that select makes.",
                    fix=f"Write one of {', '.join(self.select)}.",
                )
        yield from check_duration(self.refresh, ("refresh",), zero=False)
