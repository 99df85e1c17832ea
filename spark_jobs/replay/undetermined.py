"""Finds differences of a replay that the ledger cannot decide, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tallyweir.schemas.pipeline import Pipeline, pipeline_definition_json
from tallyweir.schemas.pipeline.events.enrichment import names_in_ledger
from tallyweir.sinks.postgres.audit.replay.replay_committed import RecordedErasure
from tallyweir.sinks.postgres.audit.replay.replay_rows import Values
from tallyweir.sinks.postgres.outputs.output import Output, ReplayPart
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout

_TRANSFORMED = "the pipeline's transform has made it, and need not make it twice"
_PREDICTED = "a model has computed it, and need not compute it twice"
_LOOKED_UP = "it was looked up, and the lookup is another one now"
_APPROXIMATE = "an approximation depends on the order in which it was merged"
_FLOATING = "floating-point numbers were added up in another order"
_ERASED = "rows of this output were erased by a condition"
_FORGOTTEN = "a first copy came before, and the catalog has forgotten its ID since"
_KEYS_ERASED = "an erasure took the state of keys, and no copy is kept"

#: Relative difference that such sums may have.
_SUMS_DIFFER = 1e-9
_FLOATS = frozenset({"double precision", "real"})
_COUNTS = frozenset({"batch", "batch_partition", "batch_output"})
_COPIES = frozenset({"duplicate_event", "dead_letter"})
_OF_OUTPUTS = frozenset({"batch_output", "late_event", "keyed_state", "keyed_timer"})


@dataclass(frozen=True)
class Undetermined:
    """Explains why a replay cannot judge some differences.

    Args:
        pipeline: The pipeline as its file has it.
        layout: Layout of its tables, with the names of its file.
        added: Columns that its transform adds.
        changed_lookups: Names in the ledger of lookups that have changed.
        erasures: Erasures of its events.
        erased_conditions: Outputs whose rows were erased by a condition.
        has_forgotten: The catalog has forgotten IDs that a replayed batch knew.
    """

    pipeline: Pipeline
    layout: PipelineLayout
    added: Collection[str]
    changed_lookups: Collection[str]
    erasures: Collection[RecordedErasure]
    erased_conditions: Mapping[str, int]
    has_forgotten: bool

    def explain(
        self,
        part: ReplayPart,
        key: Values,
        committed: Values | None,
        replayed: Values | None,
    ) -> str:
        """Return why a difference is undetermined; empty if it is not."""
        output = part.output
        if output is None and part.table in _OF_OUTPUTS:
            output = key.get("output_table")
        return self._explain_rows(part, output, committed, replayed) or (
            ""
            if committed is None or replayed is None or part.output is None
            else self._explain_values(part, committed, replayed)
        )

    def _explain_rows(
        self,
        part: ReplayPart,
        output: str | None,
        committed: Values | None,
        replayed: Values | None,
    ) -> str:
        if committed is None and output in self.erased_conditions:
            return _ERASED
        if self._takes_keys(part, output):
            return _KEYS_ERASED
        if self.has_forgotten and _follows_copies(part, committed, replayed):
            return _FORGOTTEN
        return self._unsure_outputs.get(output, self._unsure_everywhere)

    @cached_property
    def _columns(self) -> dict[str, str]:
        """Return columns whose values may differ when computed again, and why."""
        unsure = dict.fromkeys(self.added, _TRANSFORMED)
        for prediction in self.pipeline.predict:
            unsure |= dict.fromkeys(prediction.new_columns, _PREDICTED)
        lookups = self.pipeline.enrich
        for name, one in zip(names_in_ledger(lookups), lookups, strict=True):
            # A looked-up column may be the key of another lookup.
            if name in self.changed_lookups or not unsure.keys().isdisjoint(one.on):
                unsure |= dict.fromkeys(one.select, _LOOKED_UP)
        return unsure

    @cached_property
    def _unsure_outputs(self) -> dict[str | None, str]:
        """Return outputs that depend on such columns, and why."""
        definition = pipeline_definition_json(self.pipeline)
        found: dict[str | None, str] = {}
        for output, described in zip(
            self.layout.outputs, definition["outputs"], strict=True
        ):
            said = str({k: v for k, v in described.items() if k != "columns"})
            said += " ".join(column.name for column in output.function_columns)
            reason = next(self._mentioned(said), "")
            if reason:
                found[output.table] = reason
        return found

    @cached_property
    def _unsure_everywhere(self) -> str:
        """Return why the outcome of every record is uncertain; empty if it is not."""
        definition = pipeline_definition_json(self.pipeline)
        conditions = [definition["validate"], definition.get("filter")]
        return next(self._mentioned(str(conditions)), "")

    def _mentioned(self, text: str) -> Iterator[str]:
        for name, reason in self._columns.items():
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                yield reason

    def _takes_keys(self, part: ReplayPart, output: str | None) -> bool:
        if not any(one.took_keys for one in self.erasures):
            return False
        is_keyed = any(one.table == output for one in self.layout.keyed)
        return is_keyed or part.table in {"keyed_state", "keyed_timer"}

    def _explain_values(
        self, part: ReplayPart, committed: Values, replayed: Values
    ) -> str:
        reasons = {
            self._columns.get(name)
            or self._explain_value(part, name, value, replayed[name])
            for name, value in committed.items()
        }
        return "" if "" in reasons else "; ".join(sorted(reasons))

    def _explain_value(
        self, part: ReplayPart, name: str, committed: str | None, replayed: str | None
    ) -> str:
        output = next(o for o in self.layout.outputs if o.table == part.output)
        if name in output.approximate_columns:
            return _APPROXIMATE
        if name in _floating(output) and _are_close(committed, replayed):
            return _FLOATING
        return ""


def _follows_copies(
    part: ReplayPart, committed: Values | None, replayed: Values | None
) -> bool:
    """Return whether a difference follows from taking a copy for the first one."""
    if part.table in _COUNTS:
        return True
    if part.table in _COPIES:
        return replayed is None
    return part.has_positions and committed is None


def _floating(output: Output) -> set[str]:
    return {one.name for one in output.summed_columns if one.postgres_type in _FLOATS}


def _are_close(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    return math.isclose(float(one), float(other), rel_tol=_SUMS_DIFFER)
