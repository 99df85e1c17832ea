"""The ports of ``resolve``, narrowed to a single branch.

The service finishes each branch separately: a database that does not answer, or a
branch that another role owns, must not delay the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tallyweir.sinks.protocol.in_doubt import GlobalId, InDoubtFacts
from tallyweir.sinks.protocol.ports import DecisionLedger, PreparedBranches


class OneDecision:
    """The ``DecisionLedger`` of a pipeline as if it had decided one branch at most.

    It leaves out only other branches, so every verdict on this one is the same.
    """

    def __init__(self, ledger: DecisionLedger, gid: GlobalId) -> None:
        self._ledger = ledger
        self._gid = gid

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        facts = self._ledger.read_in_doubt(gids)
        return replace(facts, unresolved=facts.unresolved & {self._gid})

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        self._ledger.note_committed(branches)


class OneBranch:
    """The ``PreparedBranches`` of a database, limited to one listed branch.

    Args:
        branches: All prepared branches of that database.
        listed: The branch, if it was found prepared before; may be empty.
    """

    def __init__(self, branches: PreparedBranches, listed: Sequence[GlobalId]) -> None:
        self._branches = branches
        self._listed = listed

    @property
    def database(self) -> str:
        return self._branches.database

    def list_prepared(self) -> Sequence[GlobalId]:
        return self._listed

    def commit_prepared(self, gid: GlobalId) -> bool:
        return self._branches.commit_prepared(gid)

    def roll_back_prepared(self, gid: GlobalId) -> bool:
        return self._branches.roll_back_prepared(gid)

    def has_marker(self, gid: GlobalId) -> bool:
        return self._branches.has_marker(gid)
