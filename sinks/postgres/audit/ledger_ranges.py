"""The ledger's ranges, in a form that a database without the ledger can be asked by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.audit.audited_pipeline import fetch_one, read_positions
from sinks.postgres.statements import load_statements
from sinks.protocol.offsets import TopicPartition

_OUTPUTS = load_statements("sinks.postgres.audit", "outputs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRanges:
    """Every range of every batch, as parallel lists, and where reading goes on."""

    topics: list[str]
    partitions: list[int]
    sequences: list[int]
    froms: list[int]
    untils: list[int]
    #: Events that became results.
    committed: list[int]
    next_offsets: dict[TopicPartition, int]

    @property
    def read_topics(self) -> list[str]:
        """Every topic that the pipeline ever read."""
        return sorted({*self.topics, *(place.topic for place in self.next_offsets)})

    @property
    def parameters(self) -> dict[str, object]:
        """What the statements about rows per range are given."""
        return {
            "topics": self.topics,
            "partitions": self.partitions,
            "sequences": self.sequences,
            "froms": self.froms,
            "untils": self.untils,
            "read_topics": self.read_topics,
        }

    def committed_by_range(self) -> Iterator[tuple[int, TopicPartition, int]]:
        """Yield each range's batch, partition and committed events."""
        for sequence, topic, partition, committed in zip(
            self.sequences, self.topics, self.partitions, self.committed, strict=True
        ):
            yield sequence, TopicPartition(topic, partition), committed


def read_ledger_ranges(connection: Connection[TupleRow], pipeline: str) -> LedgerRanges:
    """Read all ranges, inside of the caller's snapshot."""
    return LedgerRanges(
        **fetch_one(connection, _OUTPUTS["ledger_ranges"], pipeline=pipeline),
        next_offsets=read_positions(connection, pipeline),
    )
