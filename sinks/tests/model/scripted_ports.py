"""The ports of the protocol, answered from a list of answers.

The calls that a port makes are steps of the model; what it returns was decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from tallyweir.sinks.protocol.decisions import PublishDecision
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    DisagreementError,
    FatalError,
    FencedError,
    OutcomeUnknownError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, InDoubtFacts
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    BatchTerms,
    BranchOrder,
    Progress,
    RejectedRow,
    Rejection,
    RowsRejectedError,
    StagedBatch,
    StagedKeys,
)
from tallyweir.sinks.protocol.votes import (
    BatchTally,
    EventCounts,
    KeyedVote,
    PartitionTally,
    Vote,
)
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.states import FOREIGN, HOME, Gid, Raised, World

TOPIC = TopicPartition("events", 0)

_KINDS: Mapping[str, type[TallyweirError]] = {
    "fenced": FencedError,
    "fatal": FatalError,
    "disagreement": DisagreementError,
    "retryable": RetryableError,
    "unknown": OutcomeUnknownError,
    "configuration": ConfigurationError,
}


class Asked(NamedTuple):
    """The function waits for the answer to this call."""

    call: str
    arguments: tuple[Any, ...] = ()


class WaitingError(BaseException):
    """Unwinds the function at the call that has no answer yet."""


class Script:
    """The answers so far."""

    def __init__(self, answers: tuple[Any, ...]) -> None:
        self._answers = answers
        self._next = 0
        self.asked: Asked | None = None

    def ask(self, call: str, *arguments: object) -> Any:  # noqa: ANN401 - any answer
        """Return the recorded answer, raise a recorded error, or stop here."""
        if self._next == len(self._answers):
            self.asked = Asked(call, arguments)
            raise WaitingError
        answer = self._answers[self._next]
        self._next += 1
        if isinstance(answer, Raised):
            raise error_of(answer)
        return answer


def error_of(raised: Raised) -> Exception:
    """Make the error that an answer stands for."""
    if raised.kind == "rejected":
        return RowsRejectedError(
            [
                RejectedRow(topic_partition=TOPIC, offset=record, detail="")
                for record in raised.records
            ]
        )
    return _KINDS[raised.kind](raised.code, saw="", why="", fix="")


def raised_by(error: Exception) -> Raised:
    """Note an error as an answer."""
    if isinstance(error, RowsRejectedError):
        return Raised("rejected", "ROWS", tuple(row.offset for row in error.rows))
    assert isinstance(error, TallyweirError), f"a bug of the model: {error!r}"
    kinds = [kind for kind, known in _KINDS.items() if type(error) is known]
    return Raised(kinds[0], error.code)


class Names:
    """Translates names of branches between the model and production."""

    def __init__(self, rules: Rules) -> None:
        self._claim_of = rules.claim_of
        self._outside: dict[Gid, GlobalId] = {}

    def claim(self, claim: tuple[int, int]) -> EpochClaim:
        return self._claim_of(*claim)

    def outside(self, gid: Gid) -> GlobalId:
        known = self._outside.get(gid)
        if known is None:
            claim = self._claim_of(gid.epoch, gid.claim)
            known = GlobalId(
                claim=replace(claim, pipeline_number=2) if gid == FOREIGN else claim,
                sequence=SequenceNumber(gid.sequence),
                branch=f"p{gid.participant}.0",
                attempt=gid.attempt,
            )
            assert GlobalId.parse(str(known)) == known
            self._outside[gid] = known
        return known

    @staticmethod
    def inside(gid: GlobalId) -> Gid:
        return Gid(
            int(gid.claim.epoch),
            int(gid.claim.nonce, 16),
            int(gid.sequence),
            int(gid.database[1:]),
            gid.attempt,
        )


class ScriptedLedger:
    """The ``DecisionLedger`` port."""

    def __init__(self, script: Script, names: Names) -> None:
        self._script = script
        self._names = names

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        inside = tuple(sorted(self._names.inside(gid) for gid in gids))
        newest, decided, unresolved = self._script.ask("read_in_doubt", inside)
        return InDoubtFacts(
            newest=self._names.claim(newest),
            decided=frozenset(map(self._names.outside, decided)),
            unresolved=frozenset(map(self._names.outside, unresolved)),
        )

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        inside = tuple(sorted(self._names.inside(gid) for gid in branches))
        self._script.ask("note_committed", inside)


class ScriptedBranches:
    """The ``PreparedBranches`` port, and what ``Participant`` adds to it."""

    def __init__(self, script: Script, names: Names, number: int) -> None:
        self._script = script
        self._names = names
        self._number = number

    @property
    def database(self) -> str:
        return f"p{self._number}"

    def list_prepared(self) -> Sequence[GlobalId]:
        found = self._script.ask("list_prepared", self._number)
        return [self._names.outside(gid) for gid in found]

    def commit_prepared(self, gid: GlobalId) -> bool:
        return bool(self._script.ask("commit_prepared", self._names.inside(gid)))

    def roll_back_prepared(self, gid: GlobalId) -> bool:
        return bool(self._script.ask("roll_back_prepared", self._names.inside(gid)))

    def has_marker(self, gid: GlobalId) -> bool:
        return bool(self._script.ask("has_marker", self._names.inside(gid)))

    def open(self) -> None:
        """Nothing to make in the model."""

    def create_tables(self) -> None:
        self._script.ask("create_tables", self._number)

    def touched(self, tally: BatchTally, terms: BatchTerms) -> Sequence[str]:
        del terms
        return [f"{self.database}.0"] if tally.staged.get(self.database) else []

    def begin_prepare(self, order: BranchOrder) -> None:
        gid = self._names.inside(order.gid)
        after = order.terms.decided.get(order.gid.branch)
        self._script.ask(
            "begin_prepare",
            gid,
            None if after is None else self._names.inside(after),
            order.tally.staged[self.database],
            tuple(int(attempt) for attempt in order.tally.attempts),
        )

    def await_prepared(self, gid: GlobalId, *, meanwhile: Callable[[], None]) -> None:
        del meanwhile
        self._script.ask("await_prepared", self._names.inside(gid))

    def await_quiet(self) -> None:
        self._script.ask("await_quiet", self._number)

    def newest_markers(self) -> Mapping[str, GlobalId]:
        newest = self._script.ask("newest_marker", self._number)
        return (
            {}
            if newest is None
            else {f"{self.database}.0": self._names.outside(newest)}
        )


class ScriptedPublishTransaction:
    """The ``PublishTransaction`` port."""

    def __init__(self, script: Script, names: Names, tally: BatchTally) -> None:
        self._script = script
        self._names = names
        self._tally = tally
        decision, self._sequence, self._decided = script.ask("open")
        self.decision = PublishDecision(decision)

    @property
    def terms(self) -> BatchTerms:
        decided = map(self._names.outside, self._decided)
        return BatchTerms(
            sequence=SequenceNumber(self._sequence),
            watermark_before_us=None,
            watermark_after_us=None,
            planned_at_us=0,
            decided={gid.branch: gid for gid in decided},
        )

    def move_rows(self) -> None:
        tally = self._tally
        self._script.ask(
            "move_rows",
            tally.staged.get("home", 0),
            tally.counts.dead,
            tuple(int(attempt) for attempt in tally.attempts),
        )

    def keep_alive(self) -> None:
        """Nothing times out in the model."""

    def commit(self, branches: Sequence[GlobalId]) -> None:
        inside = tuple(self._names.inside(gid) for gid in branches)
        self._script.ask("commit", inside)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not isinstance(error, WaitingError):
            self._script.ask("close")


class ScriptedHome(ScriptedLedger):
    """The ``Home`` port."""

    def __init__(self, script: Script, names: Names, claim: tuple[int, int]) -> None:
        super().__init__(script, names)
        self.claim = names.claim(claim)

    def open_publish_transaction(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> ScriptedPublishTransaction:
        del plan, restagings
        return ScriptedPublishTransaction(self._script, self._names, tally)

    def claim_epoch(self) -> Epoch:
        """Not called: the model claims for a driver."""
        raise NotImplementedError

    def read_progress(self) -> Progress:
        """Not called: the model reads for a driver."""
        raise NotImplementedError

    def read_decided(self) -> Mapping[str, GlobalId]:
        decided = map(self._names.outside, self._script.ask("read_decided"))
        return {gid.branch: gid for gid in decided}


def ranges_of(first: int, until: int) -> tuple[OffsetRange, ...]:
    """Name the Kafka offsets of some offsets of the model: two records each."""
    if first == until:
        return ()
    return (
        OffsetRange(
            topic_partition=TOPIC, from_offset=2 * first, until_offset=2 * until
        ),
    )


class ScriptedStage:
    """The ``Stage`` port: which attempts voted is the answer, the votes follow."""

    def __init__(self, script: Script, world: World) -> None:
        self._script = script
        self._world = world

    def __call__(self, plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
        del plan
        rows = [row for row in rejected if isinstance(row, RejectedRow)]
        dead = tuple(sorted(row.offset for row in rows))
        votes, records = self._script.ask("stage", dead)
        return StagedBatch(
            votes=[
                self._vote(attempt, [r for r in records if r % 2 == task], dead)
                for task, attempt in votes
            ],
            records_read=len(records),
        )

    def _vote(self, attempt: int, records: list[int], dead: tuple[int, ...]) -> Vote:
        good = [record for record in records if record not in dead]
        counts = EventCounts(
            read=len(records), committed=len(good), dead=len(records) - len(good)
        )
        seen = PartitionTally(
            counts=counts, offset_min=min(records), offset_max=max(records)
        )
        return Vote(
            attempt=Attempt(attempt),
            partitions={TOPIC: seen},
            staged=_rows_of(good, self._world),
            outputs={},
            checksum=sum(good),
        )


class ScriptedStageKeys:
    """The ``StageKeys`` port, which fires what is due."""

    def __init__(self, script: Script, world: World) -> None:
        self._script = script
        self._world = world

    def __call__(self, plan: BatchPlan, tally: BatchTally) -> StagedKeys:
        del plan, tally
        votes, due = self._script.ask("stage", ())
        return StagedKeys(
            votes=[
                KeyedVote(
                    attempt=Attempt(attempt),
                    consumed={},
                    staged=_rows_of([r for r in due if r % 2 == task], self._world),
                    rows={},
                )
                for task, attempt in votes
            ],
            watermark_us=None,
        )


def _rows_of(records: list[int], world: World) -> dict[str, int]:
    """Count the rows that records have in each database."""
    return {
        "home" if database == HOME else f"p{database}": rows
        for database in (HOME, 0, 1)
        if (rows := sum(world.goes_to(r, database) for r in records))
    }
