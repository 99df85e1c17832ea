"""Prepared branches: how they are named, and what may be done with one.

A branch is a share of a batch that a transaction other than the home's publishes. It is
*prepared* first. Then the home's COMMIT decides; it holds the list of the batch's
branches. Then each branch is committed. Between prepare and commit a branch is in
doubt: it survives crashes and keeps its locks until a driver or the resolver finishes
it. (If the answer to the home's COMMIT is lost, ``coordinator`` publishes again.)

Three facts say which process may finish it, and how:

- the *decisions* in the home database: the global ids that a batch was committed
  with. A decided branch is always committed, by the process that finds it.
- the *newest claim*. A driver decides only while it holds the newest claim, under the
  lock of the pipeline's row. So a process that has held that lock and then finds a
  newer claim knows: an older claim will decide nothing more.
- the *marker* that each branch leaves in its own database. If a global id is gone and
  its marker exists, the branch was committed. A missing id alone proves nothing.

Order matters: list the prepared branches first, read claim and decisions afterwards.
In the other order, a branch that was prepared and decided in between would look like
one that will never be decided (as Citus found, issue 1030).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tallyweir.sinks.protocol.errors import DisagreementError, FatalError
from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber

#: Bits for the number of an attempt: a nonce takes the other 32 of 63.
_ATTEMPT_BITS = 31

_PATTERN = re.compile(
    r"tallyweir:(?P<installation>[0-9a-f]{12})"
    r":(?P<pipeline_number>[0-9]{1,10}):(?P<epoch>[0-9]{1,19})"
    r":(?P<nonce>[0-9a-f]{8}):(?P<sequence>[0-9]{1,19})"
    r":(?P<branch>[a-z][a-z0-9_]{0,30}\.[0-9]{1,2}):(?P<attempt>[0-9]{1,10})"
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EpochClaim:
    """One driver's claim of an epoch.

    After a restore of the home database the same epoch may be claimed again; the
    nonce, drawn at random with each claim, tells the two drivers apart.
    """

    installation: str
    pipeline_number: int
    epoch: Epoch
    nonce: str

    def attempt(self, number: int) -> Attempt:
        """Name an attempt by its number among those of this claim.

        Two drivers may work under one epoch after a restore, and both count from 0.
        With equal names, if a crash lost the rows of one driver, as many rows of the
        other would be published in their place.

        Args:
            number: Spark counts upwards from 0; the driver counts downwards from -1
                for what it stages by itself. They would meet after 2^31 attempts.
        """
        within = number % (1 << _ATTEMPT_BITS)
        return Attempt(int(self.nonce, 16) << _ATTEMPT_BITS | within)

    def is_of_the_same_pipeline(self, other: EpochClaim) -> bool:
        """Tell whether two claims are of one pipeline of one installation."""
        return (self.installation, self.pipeline_number) == (
            other.installation,
            other.pipeline_number,
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GlobalId:
    """Name of one prepared branch, unique over all tries, drivers and pipelines."""

    claim: EpochClaim
    sequence: SequenceNumber
    branch: str
    #: Counts the tries of one driver, so that a try never meets its predecessor.
    attempt: int

    @property
    def database(self) -> str:
        """The database that the branch is in, by its name in the pipeline."""
        return self.branch.rpartition(".")[0]

    def __str__(self) -> str:
        claim = self.claim
        return (
            f"tallyweir:{claim.installation}:{claim.pipeline_number}:{claim.epoch}"
            f":{claim.nonce}:{self.sequence}:{self.branch}:{self.attempt}"
        )

    @classmethod
    def parse(cls, text: str) -> GlobalId | None:
        """Read what ``str`` wrote; None for a name in any other form."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            return None
        return cls(
            claim=EpochClaim(
                installation=match["installation"],
                pipeline_number=int(match["pipeline_number"]),
                epoch=Epoch(int(match["epoch"])),
                nonce=match["nonce"],
            ),
            sequence=SequenceNumber(int(match["sequence"])),
            branch=match["branch"],
            attempt=int(match["attempt"]),
        )


class InDoubtVerdict(Enum):
    """What to do with a prepared branch."""

    COMMIT = "commit"
    ROLL_BACK = "roll_back"
    #: It is another pipeline's, or its driver still works and may yet decide it.
    LEAVE = "leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubtFacts:
    """What the home database says, read under the lock of the pipeline's row."""

    newest: EpochClaim
    #: Those of the branches asked about that a batch was committed with.
    decided: frozenset[GlobalId]
    #: Decided branches, asked about or not, that are not yet noted as committed.
    unresolved: frozenset[GlobalId]


def decide_in_doubt(
    gid: GlobalId, facts: InDoubtFacts, *, at_rest: EpochClaim | None
) -> InDoubtVerdict:
    """Tell what to do with a branch that was found prepared before the facts were read.

    Args:
        gid: A prepared branch. One of another pipeline is left alone.
        facts: Read from the home database after the branch was listed.
        at_rest: The caller's claim, if it is a driver with no publish transaction
            open. What that claim has not decided by now, it will never decide.
    """
    if not gid.claim.is_of_the_same_pipeline(facts.newest):
        return InDoubtVerdict.LEAVE
    if gid in facts.decided:
        return InDoubtVerdict.COMMIT
    if gid.claim == facts.newest and gid.claim != at_rest:
        return InDoubtVerdict.LEAVE
    return InDoubtVerdict.ROLL_BACK


def check_decided_is_committed(gid: GlobalId, *, marker_found: bool) -> None:
    """Accept that a decided branch is no longer prepared, if its marker exists.

    Raises:
        FatalError: ``BRANCH_LOST``. A missing branch alone proves nothing: it may have
            been committed, rolled back by hand, or lost in a failover.
    """
    if not marker_found:
        raise FatalError(
            "BRANCH_LOST",
            saw=f"The batch of {gid} is decided, but the branch is neither prepared "
            "nor committed in its database.",
            why="Its rows are missing there: someone rolled it back by hand, or the "
            "database went back in time.",
            fix="Run tallyweir repair PIPELINE --plan to see what differs.",
        )


def compare_history(
    branch: str, *, decided: GlobalId | None, marked: GlobalId | None
) -> None:
    """Compare the newest batch that home decided for a branch with its database.

    Each database has one history, so if the newest entries agree, all do.

    Args:
        branch: Its name.
        decided: Its newest decision in the home database; all decisions are finished.
        marked: The newest marker in the branch's database.

    Raises:
        DisagreementError: ``PARTICIPANT_AHEAD`` or ``PARTICIPANT_BEHIND``: one of the
            two went back in time.
    """
    if decided == marked:
        return
    saw = (
        f"Branch {branch}: home has decided {_batch(decided)}, "
        f"its database holds {_batch(marked)}."
    )
    is_behind = marked is None or (
        decided is not None and marked.sequence < decided.sequence
    )
    if is_behind:
        raise DisagreementError(
            "PARTICIPANT_BEHIND",
            saw=saw,
            why="The branch's database went back in time, by a restore or a failover, "
            "and lacks rows that were committed.",
            fix="Run tallyweir repair PIPELINE --plan to see which.",
        )
    raise DisagreementError(
        "PARTICIPANT_AHEAD",
        saw=saw,
        why="The home database went back in time, by a restore or a failover; reading "
        "on from its offsets would write rows a second time.",
        fix="Run tallyweir repair PIPELINE --plan to see which.",
    )


def _batch(gid: GlobalId | None) -> str:
    if gid is None:
        return "nothing"
    return f"batch {gid.sequence} of epoch {gid.claim.epoch} ({gid.claim.nonce})"
