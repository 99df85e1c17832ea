"""What a version's windows and IDs do not know of the time before it.

A window that had begun when an aggregate was added never learns what the aggregate
would have made of its first events: it shows NULL for it until it is final. A window
that was final stays final, however long later ones may be revised. An ID that was
forgotten stays forgotten, however long later ones are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWindows:
    """Limits of one window table's knowledge; instants are microseconds since 1970.

    Attributes:
        closed_through_us: Windows that end by this instant take no more events.
        known_after_us: By column: only windows that begin after it know the aggregate.
    """

    closed_through_us: int | None = None
    known_after_us: Mapping[str, int] = field(default_factory=dict)

    def joined(self, other: HeldWindows) -> HeldWindows:
        """Return the knowledge that both have."""
        columns = {**self.known_after_us, **other.known_after_us}
        return HeldWindows(
            closed_through_us=_later(self.closed_through_us, other.closed_through_us),
            known_after_us={
                column: max(
                    held.known_after_us[column]
                    for held in (self, other)
                    if column in held.known_after_us
                )
                for column in columns
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldKnowledge:
    """Limits of a pipeline's knowledge.

    Attributes:
        ids_from_us: IDs of events before it are unknown, as if they had expired.
        windows: The limits of window tables, by table.
    """

    ids_from_us: int | None = None
    windows: Mapping[str, HeldWindows] = field(default_factory=dict)

    def joined(self, other: HeldKnowledge) -> HeldKnowledge:
        """Return the knowledge that both have."""
        none = HeldWindows()
        return HeldKnowledge(
            ids_from_us=_later(self.ids_from_us, other.ids_from_us),
            windows={
                table: self.windows.get(table, none).joined(
                    other.windows.get(table, none)
                )
                for table in {**self.windows, **other.windows}
            },
        )

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> HeldKnowledge:
        """Read what ``to_json`` wrote."""
        return cls(
            ids_from_us=kept.get("ids_from_us"),
            windows={
                table: HeldWindows(**of_table)
                for table, of_table in kept.get("windows", {}).items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        """Write the knowledge as JSON for the ledger."""
        return {
            "ids_from_us": self.ids_from_us,
            "windows": {
                table: {
                    "closed_through_us": one.closed_through_us,
                    "known_after_us": dict(one.known_after_us),
                }
                for table, one in self.windows.items()
            },
        }

    def applied_to(self, layout: PipelineLayout) -> PipelineLayout:
        """Return a pipeline's layout with this knowledge in it."""
        return replace(
            layout,
            ids_from_us=self.ids_from_us,
            outputs=tuple(self._applied(output) for output in layout.outputs),
        )

    def _applied(self, output: Output) -> Output:
        held = self.windows.get(output.table)
        if held is None:
            return output
        return output.knowing(held.closed_through_us, held.known_after_us)


def _later(one_us: int | None, other_us: int | None) -> int | None:
    return max((us for us in (one_us, other_us) if us is not None), default=None)
