"""What goes wrong in a run, when and how: a pure function of options and seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

HOME = "home"

#: Batches in a stage, if each reads half of the offsets that it may read.
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
    REGISTRY_KILL = "registry_kill"
    REGISTRY_WIPE = "registry_wipe"


class EventFormat(StrEnum):
    """How the events of a run are written."""

    AVRO = "avro"
    JSON = "json"
    #: Avro whose schemas are in a registry.
    REGISTRY = "registry"


_OF_A_REGISTRY = frozenset({Kind.REGISTRY_KILL, Kind.REGISTRY_WIPE})


def kinds_in(event_format: EventFormat) -> list[Kind]:
    """List the kinds of faults that a run in a format can have."""
    has_registry = event_format is EventFormat.REGISTRY
    return [kind for kind in Kind if has_registry or kind not in _OF_A_REGISTRY]


#: How often each kind occurs in a deck, after each kind has occurred once.
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
    Kind.REGISTRY_KILL: 4,
    Kind.REGISTRY_WIPE: 2,
}


class Statement(StrEnum):
    """Messages at which chaos cuts a connection."""

    #: A client has sent all rows of a COPY.
    COPY_END = "copy_end"
    #: COMMIT of a transaction that wrote no ledger row.
    COMMIT = "commit"
    #: COMMIT of a transaction that wrote one: the decision about a batch.
    PUBLISH_COMMIT = "publish_commit"
    #: PREPARE TRANSACTION.
    PREPARE = "prepare_transaction"
    COMMIT_PREPARED = "commit_prepared"


class CutSide(StrEnum):
    """What happens to the message at which a connection is cut."""

    #: The server never sees it.
    BEFORE = "before"
    #: The server acts on it; the client hears nothing.
    AFTER = "after"
    #: The proxy sends it and resets both ends at once; the server may still act on it.
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a connection to Postgres breaks.

    Attributes:
        statement: The message at which it breaks.
        side: What happens to that message.
        skip: Number of these messages that pass first.
    """

    statement: Statement
    side: CutSide
    skip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault.

    Attributes:
        number: Its number in the plan, from 0.
        kind: What happens.
        progress: Share of the run's records that the pipeline reads before it.
        moment: When within a batch, as a share of an earlier batch's duration.
        database: The database whose server or network it hits, for kinds that hit one.
        pause_s: How long a driver is stopped.
        in_place: Whether the checkpoint changes under a running driver, or while it
            is dead.
        cut: Where the connection breaks, for ``NETWORK_CUT``.
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
    """The user's options of a run.

    Attributes:
        kills: Number of faults.
        events: Number of different valid events.
        seed: Decides workload and faults.
        databases: Number of databases: the home and its participants.
        event_format: How the events are written.
    """

    kills: int
    events: int
    seed: int
    databases: int
    event_format: EventFormat = EventFormat.AVRO

    @property
    def database_names(self) -> tuple[str, ...]:
        """Home first, then the participants."""
        return (HOME, *(f"p{number}" for number in range(1, self.databases)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosPlan:
    """All that is decided before a run.

    Attributes:
        options: The options that it was made from.
        injections: The faults, in order.
        records: Number of records that the workload's committed transactions will have.
        batch_offsets_max: Most offsets that a batch may read.
    """

    options: ChaosOptions
    injections: tuple[Injection, ...]
    records: int
    batch_offsets_max: int

    @property
    def stages(self) -> int:
        """Number of equal parts of the run, of which most have a fault."""
        return _stages(len(self.injections))

    @property
    def stage_records(self) -> int:
        """Records between two faults, on average."""
        return max(1, self.records // self.stages)

    def as_json(self) -> dict[str, object]:
        """Return everything that the seed decided, except for the events."""
        return {
            **asdict(self.options),
            "records": self.records,
            "batch_offsets_max": self.batch_offsets_max,
            "injections": [str(injection) for injection in self.injections],
        }


def write_plan(options: ChaosOptions, *, records: int) -> ChaosPlan:
    """Decide what goes wrong.

    The plan spreads the faults over the run by what the pipeline has read, not by time:
    one in each of ``kills`` equal stages, so that a slow machine suffers no less. The
    last stages have no fault, because a fault that misses is tried again on later
    records, and the stream must last until the last fault has hit.

    Args:
        options: The same options give the same plan.
        records: Number of records that the workload commits.
    """
    source = random.Random(f"{options.seed}/plan")  # noqa: S311 (repeatable)
    kinds = _kinds(source, kinds_in(options.event_format))
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


def count_kinds(injections: tuple[Injection, ...]) -> Counter[str]:
    """Count the faults of a plan by kind."""
    return Counter(str(injection.kind) for injection in injections)


def _stages(kills: int) -> int:
    return kills + 2 + kills // 10


def _kinds(source: random.Random, deck: list[Kind]) -> Iterator[Kind]:
    """Yield every kind once, shuffled; then shuffled decks by weight, without end."""
    weighted = [kind for kind in deck for _ in range(_WEIGHTS[kind])]
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
    # Every kind draws these values, so that one more kind shifts no other draw.
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
