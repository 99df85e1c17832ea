"""What goes wrong in a run, when and how: a pure function of options and seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from services.dev.chaos.wire_messages import Statement

HOME = "home"

#: A batch is to hold about so many offsets that each stage has several batches.
_BATCHES_PER_STAGE = 6
_BATCH_OFFSETS_MIN = 100
_BATCH_OFFSETS_MAX = 20_000


class Kind(StrEnum):
    """Kinds of faults."""

    DRIVER_KILL = "driver_kill"
    DRIVER_PAUSE = "driver_pause"
    TWO_DRIVERS = "two_drivers"
    WORKER_KILL = "worker_kill"
    KAFKA_KILL = "kafka_kill"
    POSTGRES_STOP = "postgres_stop"
    CHECKPOINT_DELETED = "checkpoint_deleted"
    CHECKPOINT_RESTORED = "checkpoint_restored"
    NETWORK_CUT = "network_cut"


#: How often each kind comes up once every kind has come up.
_WEIGHTS = {
    Kind.DRIVER_KILL: 5,
    Kind.DRIVER_PAUSE: 1,
    Kind.TWO_DRIVERS: 1,
    Kind.WORKER_KILL: 3,
    Kind.KAFKA_KILL: 2,
    Kind.POSTGRES_STOP: 4,
    Kind.CHECKPOINT_DELETED: 2,
    Kind.CHECKPOINT_RESTORED: 2,
    Kind.NETWORK_CUT: 6,
}


class CutSide(StrEnum):
    """What becomes of the message that a connection is cut at."""

    #: The server never sees it.
    BEFORE = "before"
    #: The server acts on it; the client hears nothing.
    AFTER = "after"
    #: It is sent and both ends are reset at once, while the server may still act.
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a connection to Postgres breaks.

    Attributes:
        statement: At which message.
        side: Before or after it.
        skip: So many of these messages pass first.
    """

    statement: Statement
    side: CutSide
    skip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault.

    Attributes:
        number: From 0, in order.
        kind: What happens.
        progress: Share of the run's records that the pipeline has read before.
        moment: When within a batch, as a share of a former batch's duration.
        database: Whose server or network, where the kind concerns one.
        pause_s: How long a driver is stopped.
        in_place: Whether the checkpoint changes under a running driver, or while it
            is dead.
        cut: For ``NETWORK_CUT``.
    """

    number: int
    kind: Kind
    progress: float
    moment: float
    database: str
    pause_s: float
    in_place: bool
    cut: Cut | None

    def __str__(self) -> str:
        match self.kind:
            case Kind.NETWORK_CUT:
                assert self.cut is not None
                cut = self.cut
                return (
                    f"{self.kind} {self.database} {cut.side} {cut.statement}"
                    f" (after {cut.skip} others)"
                )
            case Kind.POSTGRES_STOP:
                return f"{self.kind} {self.database}"
            case Kind.DRIVER_PAUSE:
                return f"{self.kind} {self.pause_s:.0f} s"
            case Kind.CHECKPOINT_DELETED | Kind.CHECKPOINT_RESTORED:
                return f"{self.kind} {'in place' if self.in_place else 'while dead'}"
        return str(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """What a user asks for.

    Attributes:
        kills: Faults in all.
        events: Different valid events.
        seed: Decides workload and faults.
        databases: Home and its participants.
    """

    kills: int
    events: int
    seed: int
    databases: int

    @property
    def database_names(self) -> tuple[str, ...]:
        """Home first, then the participants."""
        return (HOME, *(f"p{number}" for number in range(1, self.databases)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosPlan:
    """A run, decided.

    Attributes:
        options: What it was made from.
        injections: In order.
        records: Records of committed transactions that the workload will have.
        batch_offsets_max: Offsets that a batch may read.
    """

    options: ChaosOptions
    injections: tuple[Injection, ...]
    records: int
    batch_offsets_max: int

    @property
    def stage_records(self) -> int:
        """Records between two faults, on average."""
        return max(1, self.records // _stages(len(self.injections)))

    def as_json(self) -> dict[str, object]:
        """Return everything that the seed decided but for the events."""
        return {
            **asdict(self.options),
            "records": self.records,
            "batch_offsets_max": self.batch_offsets_max,
            "injections": [str(injection) for injection in self.injections],
        }


def write_plan(options: ChaosOptions, *, records: int) -> ChaosPlan:
    """Decide what goes wrong.

    The faults are spread over the run by what the pipeline has read, not by time:
    one in each of ``kills`` equal stages, so that a slow machine suffers no less. The
    last stages have none: a fault that finds nothing at work is tried again on what
    comes after, and the stream must last until the last fault has hit.

    Args:
        options: The same options give the same plan.
        records: How many records the workload commits.
    """
    source = random.Random(f"{options.seed}/plan")  # noqa: S311 (repeatable)
    kinds = _kinds(source)
    stages = _stages(options.kills)
    injections = tuple(
        _injection(
            source,
            number=number,
            kind=next(kinds),
            progress=(number + source.uniform(0.1, 0.6)) / stages,
            databases=options.database_names,
        )
        for number in range(options.kills)
    )
    per_stage = records // stages
    return ChaosPlan(
        options=options,
        injections=injections,
        records=records,
        batch_offsets_max=min(
            _BATCH_OFFSETS_MAX,
            max(_BATCH_OFFSETS_MIN, 2 * per_stage // _BATCHES_PER_STAGE),
        ),
    )


def count_kinds(injections: tuple[Injection, ...]) -> dict[str, int]:
    """Count the faults of a plan by kind."""
    return dict(Counter(str(injection.kind) for injection in injections))


def _stages(kills: int) -> int:
    return kills + 2 + kills // 10


def _kinds(source: random.Random) -> Iterator[Kind]:
    """Every kind once, shuffled; then shuffled decks by weight, for ever."""
    deck = list(Kind)
    weighted = [kind for kind, weight in _WEIGHTS.items() for _ in range(weight)]
    while True:
        source.shuffle(deck)
        yield from deck
        deck = weighted


def _injection(
    source: random.Random,
    *,
    number: int,
    kind: Kind,
    progress: float,
    databases: tuple[str, ...],
) -> Injection:
    # Everything is drawn for every kind, so that one more kind shifts no other draw.
    database = source.choice(databases)
    return Injection(
        number=number,
        kind=kind,
        progress=progress,
        moment=source.uniform(0.05, 0.95),
        database=database,
        pause_s=source.uniform(5.0, 40.0),
        in_place=source.random() < 0.5,  # noqa: PLR2004 (one half)
        cut=_cut(source, database) if kind is Kind.NETWORK_CUT else None,
    )


def _cut(source: random.Random, database: str) -> Cut:
    statements = (
        (
            Statement.PUBLISH_COMMIT,
            Statement.PUBLISH_COMMIT,
            Statement.COMMIT,
            Statement.COPY_END,
        )
        if database == HOME
        else (Statement.PREPARE, Statement.COMMIT_PREPARED, Statement.COPY_END)
    )
    return Cut(
        statement=source.choice(statements),
        side=source.choice(list(CutSide)),
        skip=source.randrange(4),
    )
