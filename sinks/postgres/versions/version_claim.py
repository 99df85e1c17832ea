"""Decides which version a driver may claim to run, and what it must know of it.

A driver with the version in force just runs it. A driver with another file makes it the
next version, if that needs nothing but a start. A driver is refused if an operator has
put another version in the place of its own: its file is an old one that a supervisor
has kept, and would undo what the operator asked for.

With a version, the ledger keeps the pipeline's tables as JSON, with which the next
version is compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.epoch_claims import read_newest_epoch
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.versions.comparison import compare
from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge
from tallyweir.sinks.postgres.versions.holdings import read_holdings
from tallyweir.sinks.postgres.versions.pipeline_versions import (
    Coming,
    PipelineVersion,
    add_version,
    read_in_force,
    tell_layout,
    was_superseded,
)
from tallyweir.sinks.postgres.versions.version_plan import DescribedVersion
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """A version that may be claimed.

    Attributes:
        wanted: The version that the driver runs.
        in_force: The version in force; None before the first.
        held: What the driver must know of its windows and IDs.
    """

    pipeline: str
    wanted: DescribedVersion
    in_force: PipelineVersion | None
    held: HeldKnowledge

    def note(
        self, connection: Connection[TupleRow], *, epoch: Epoch, last_sequence: int
    ) -> None:
        """Make it the version in force, in the transaction that judged it.

        The caller holds the pipeline's row. For a driver that is fenced already this
        changes nothing; the driver is told by its next step.
        """
        former = self.in_force
        if read_newest_epoch(connection, self.pipeline) != epoch:
            return
        if former and former.definition_hash == self.wanted.definition_hash:
            if former.layout is None or not names_functions(former.layout):
                tell_layout(connection, self.pipeline, former.version, self.wanted)
            return
        coming = Coming(
            epoch=epoch,
            from_sequence=last_sequence,
            reason="started with a changed file" if former else "the first start",
        )
        add_version(connection, self.pipeline, self.wanted, self.held, coming)


def describe_layout(layout: PipelineLayout) -> DescribedVersion:
    """Return a pipeline as the ledger would keep it as the next version."""
    return DescribedVersion(
        definition=json.loads(layout.definition),
        definition_hash=layout.definition_hash,
        layout=layout_to_json(layout),
        file_text=layout.file_text,
    )


def judge_claim(
    connection: Connection[TupleRow], layout: PipelineLayout
) -> JudgedClaim:
    """Decide whether a driver may run a pipeline as it is laid out.

    Raises:
        ConfigurationError: ``VERSION_SUPERSEDED``, ``LAYOUT_UNKNOWN``,
            ``UPDATE_NEEDED``, or the code of a finding that makes it impossible.
    """
    pipeline = layout.pipeline
    wanted = describe_layout(layout)
    in_force = read_in_force(connection, pipeline)
    judged = JudgedClaim(
        pipeline=pipeline,
        wanted=wanted,
        in_force=in_force,
        held=HeldKnowledge() if in_force is None else in_force.knowledge,
    )
    if in_force is None or in_force.definition_hash == wanted.definition_hash:
        return judged
    if was_superseded(connection, pipeline, wanted.definition_hash):
        raise ConfigurationError(
            "VERSION_SUPERSEDED",
            saw=f"Version {in_force.version} of {pipeline} has been in force since "
            f"{in_force.made_at.isoformat(sep=' ', timespec='seconds')}, by "
            f"{in_force.made_by}: {in_force.reason}. This file is an earlier "
            "version.",
            why="Running it would undo that change.",
            fix=f"Start it with the file of version {in_force.version} "
            f"(tallyweir versions {pipeline} --show {in_force.version}), or go back "
            f"with tallyweir rollback {pipeline} VERSION.",
        )
    former = in_force.described()
    holdings = read_holdings(connection, pipeline, former.layout, wanted.layout)
    plan = compare(former, wanted, holdings, in_force.knowledge)
    plan.check_compatible()
    return replace(judged, held=plan.held)


def layout_to_json(layout: PipelineLayout) -> dict[str, Any]:
    """Describe all tables of a pipeline; durations are microseconds."""
    return {
        "horizon_us": layout.horizon_us,
        "writers": [list(writer) for writer in layout.writers],
        "outputs": [_output_to_json(output) for output in layout.outputs],
    }


def names_functions(layout: Mapping[str, Any]) -> bool:
    """Tell whether a layout names its aggregates' functions; older ones did not."""
    return all(
        "function" in aggregate
        for output in layout["outputs"]
        for aggregate in output.get("aggregates", ())
    )


def _output_to_json(output: Output) -> dict[str, Any]:
    return {
        "table": output.table,
        "kind": output.kind.name,
        "is_home": output.branches == (HOME,),
        **output.described(),
    }
