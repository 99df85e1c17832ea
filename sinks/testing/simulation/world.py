"""The databases and the topic of one history, and where each record belongs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.testing.memory_home import (
    PIPELINE_NUMBER,
    DatabaseState,
    MemoryDatabase,
    MemoryHome,
)
from tallyweir.sinks.testing.memory_participant import (
    MemoryParticipantDatabase,
    MemoryPreparedBranches,
    ParticipantState,
)
from tallyweir.sinks.testing.memory_server import MemoryServer
from tallyweir.sinks.testing.planned_batches import HOME, Position

#: How far each partition reaches in Kafka.
LOG_END = {TopicPartition("events", 0): 30, TopicPartition("events", 1): 15}

#: The participants and their branches.
BRANCHES = {"billing": ("billing.0", "billing.1"), "audit": ("audit.0",)}

_ALL_BRANCHES = (HOME, *(name for names in BRANCHES.values() for name in names))

#: A branch of a pipeline of another home, prepared in the first database for good.
STRANGER = GlobalId(
    claim=EpochClaim(
        installation="f" * 12,
        pipeline_number=PIPELINE_NUMBER,
        epoch=Epoch(1),
        nonce="f" * 8,
    ),
    sequence=SequenceNumber(1),
    branch="billing.0",
    attempt=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The states of all databases at one moment."""

    home: DatabaseState
    others: Mapping[str, ParticipantState]


class World:
    """The databases and the topic, which outlive every driver.

    Attributes:
        home: The home database.
        others: The participants, by name.
        owner: The branch that publishes each record that Kafka holds.
        refused: Records whose rows every result table refuses.
        happened: Counts the faults that took effect, by name.
    """

    def __init__(self, chance: random.Random) -> None:
        self.happened: Counter[str] = Counter()
        self.home = MemoryDatabase()
        self.others = {
            name: MemoryParticipantDatabase(name, branches)
            for name, branches in BRANCHES.items()
        }
        self.owner: dict[Position, str] = {}
        self.refused: set[Position] = set()
        self._fill_topic(chance)
        first = self.others["billing"]
        first.state = ParticipantState(prepared={STRANGER: ()})
        for server in self.servers.values():
            server.happened = self.happened
        self.home.refused = self.refused
        for database in self.others.values():
            database.refused = self.refused
        #: The records that each database must hold in the end.
        self.owned: dict[str, frozenset[Position]] = {
            name: frozenset(
                position
                for position, branch in self.owner.items()
                if database_of(branch) == name and position not in self.refused
            )
            for name in self.servers
        }

    @property
    def servers(self) -> dict[str, MemoryServer]:
        """Every database by its name."""
        return {HOME: self.home, **self.others}

    def set_interlude(self, interlude: Callable[[str], None]) -> None:
        """Call a function before each call to any database."""
        for server in self.servers.values():
            server.interlude = interlude

    def holds_record(self, position: Position) -> bool:
        """Tell whether an offset holds a record that a transaction committed."""
        return position in self.owner

    def branch_of(self, position: Position) -> str:
        """Route a record."""
        return self.owner[position]

    def cut(self) -> Cut:
        """Keep the current states of all databases."""
        return Cut(
            home=self.home.state,
            others={name: one.state for name, one in self.others.items()},
        )

    def restore(self, cut: Cut) -> None:
        """Restore all databases to one moment."""
        self.home.restore(cut.home)
        for name, database in self.others.items():
            database.restore(cut.others[name])

    def act_late(self) -> None:
        """Let every server act on statements that are still on their way to it."""
        self.home.act_late()
        for database in self.others.values():
            database.act_late()

    @property
    def has_late_statements(self) -> bool:
        """Whether a statement is still on its way to a server."""
        return self.home.is_locked or any(
            database.has_late_statements for database in self.others.values()
        )

    def resolver_ports(self) -> tuple[MemoryHome, dict[str, MemoryPreparedBranches]]:
        """Return the databases as the resolver service sees them."""
        newest = self.home.state.newest_claim
        return self.home.new_driver(), {
            name: MemoryPreparedBranches(database, newest)
            for name, database in self.others.items()
        }

    @property
    def is_read(self) -> bool:
        """Whether the pipeline stands at the end of every partition."""
        positions = self.home.state.positions
        return all(
            tp in positions and positions[tp].next_offset == end
            for tp, end in LOG_END.items()
        )

    def _fill_topic(self, chance: random.Random) -> None:
        """Write records, markers of transactions and aborted events.

        Neighbours go to the same branch, so that small batches change few databases.
        """
        stride = chance.choice((1, 3, 8))
        gaps = chance.choice((0.0, 0.1, 0.4))
        refusals = chance.choice((0.0, 0.05))
        for tp, end in LOG_END.items():
            for offset in range(end):
                if chance.random() < gaps:
                    self.happened["offset without a record"] += 1
                    continue
                branch = _ALL_BRANCHES[(offset // stride) % len(_ALL_BRANCHES)]
                self.owner[tp, offset] = branch
                if chance.random() < refusals:
                    self.refused.add((tp, offset))


def database_of(branch: str) -> str:
    """Return the database that a branch publishes in."""
    return branch.rpartition(".")[0] or HOME
