"""Everything that Postgres must know about a pipeline to serve it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME, database_of
from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.watermark import ClockRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLayout:
    """Everything that the home database must know about a pipeline to serve it."""

    pipeline: str
    #: The pipeline's definition as JSON, kept for people and for ``verify``.
    definition: str
    definition_hash: str
    outputs: tuple[Output, ...]
    shards: int
    bucket_seconds: int
    watermark_delay_us: int
    idle_timeout_us: int
    #: The horizon; None if the source is declared free of repeats.
    horizon_us: int | None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    #: The share of new IDs that a filter may report as known, to be looked up.
    false_positives: float = FALSE_POSITIVES
    #: The append tables' ID column, by which a run that upserts finds the rows that its
    #: events correct; None if it corrects nothing.
    corrected_by: Column | None = None
    #: Tables of the pipeline's file, each with the table that is written instead.
    shadows: Mapping[str, str] = field(default_factory=dict)
    #: The IDs of earlier events are not known, whatever the horizon; None for no bound.
    ids_from_us: int | None = None
    #: The contracts that may have written its events: schema ids and names.
    writers: tuple[tuple[int, str], ...] = ()
    #: For each table outside of the home: the rows that the ledger counts for it, and
    #: the batches that brought them. Rows that a person has given up do not count.
    owed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: The pipeline file, if it was YAML; for people.
    file_text: str | None = None

    @property
    def clock_rule(self) -> ClockRule:
        """How the watermark follows the partitions."""
        return ClockRule(
            delay_us=self.watermark_delay_us, idle_timeout_us=self.idle_timeout_us
        )

    def expired_before_us(self, watermark_us: int | None) -> int | None:
        """Return the event time before which no ID is remembered; None if all are."""
        if self.horizon_us is None or watermark_us is None:
            return None
        oldest_us = watermark_us - self.horizon_us
        return (
            oldest_us if self.ids_from_us is None else max(oldest_us, self.ids_from_us)
        )

    @property
    def keyed(self) -> tuple[KeyedTable, ...]:
        """The outputs whose functions keep state."""
        return tuple(one for o in self.outputs if (one := o.keyed) is not None)

    @property
    def branches(self) -> tuple[str, ...]:
        """Every publish transaction except the home's, sorted."""
        named = {branch for output in self.outputs for branch in output.branches}
        return tuple(sorted(named - {HOME}))

    @property
    def databases(self) -> tuple[str, ...]:
        """Every database that its branches publish in, sorted; may include the home."""
        return tuple(sorted({database_of(branch) for branch in self.branches}))

    def branches_in(self, database: str) -> tuple[str, ...]:
        """Return the branches that publish in one database."""
        return tuple(b for b in self.branches if database_of(b) == database)

    def outputs_of(self, branch: str) -> tuple[Output, ...]:
        """Return the outputs that one publish transaction moves rows of."""
        return tuple(output for output in self.outputs if branch in output.branches)
