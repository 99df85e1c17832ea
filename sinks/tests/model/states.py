"""The states of the model: small, immutable, hashable, and in one canonical form.

Everything is a tuple of numbers, so that two histories that lead to the same situation
are one state. Claims are numbered by one counter that never goes back; together with
their epoch they name a driver for good, as the nonce does in production.
"""

from __future__ import annotations

from typing import NamedTuple

#: Participants are numbered; these stand for the home's result and dead letter tables.
HOME = -1
DEAD = -2

#: Added to a record's number, it names the row of the timer that the record has set.
FIRED = 1_000

#: Epoch and number of a claim.
EpochClaim = tuple[int, int]


class Gid(NamedTuple):
    """Name of a prepared branch."""

    epoch: int
    #: Of the claim.
    claim: int
    sequence: int
    participant: int
    attempt: int


#: Prepared by another pipeline's driver.
FOREIGN = Gid(1, 0xFFFFFFFF, 1, 0, 1)


class Decided(NamedTuple):
    """One batch in the ledger of the home database; a tick covers no offsets."""

    sequence: int
    first: int
    until: int
    claim: int
    gids: tuple[Gid, ...]


class Home(NamedTuple):
    """The home database; a failover takes all of it back at once."""

    claims: tuple[EpochClaim, ...] = ()
    #: Next offset to read. An offset stands for one record of each task.
    offset: int = 0
    ledger: tuple[Decided, ...] = ()
    rows: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    #: Records whose timers have yet to fire.
    timers: tuple[int, ...] = ()
    #: Branches that were seen committed.
    noted: frozenset[Gid] = frozenset()

    @property
    def decided(self) -> frozenset[Gid]:
        return frozenset(gid for batch in self.ledger for gid in batch.gids)


class Participant(NamedTuple):
    """A database that holds branches."""

    #: Branches in doubt, each with the rows it holds.
    prepared: tuple[tuple[Gid, tuple[int, ...]], ...] = ()
    #: Committed branches, oldest first.
    markers: tuple[Gid, ...] = ()
    rows: tuple[int, ...] = ()


class Order(NamedTuple):
    """A branch as its worker was told to prepare it."""

    gid: Gid
    #: The newest branch that home had decided.
    after: Gid | None
    #: Number of the claim of the driver that waits for it.
    owner: int
    #: Rows that the votes promise.
    rows: int
    attempts: tuple[int, ...]


class Sent(NamedTuple):
    """A branch that its server prepares although nobody waits for it any more."""

    gid: Gid
    rows: tuple[int, ...]


class Staged(NamedTuple):
    """One staged row."""

    database: int
    epoch: int
    attempt: int
    record: int


class Raised(NamedTuple):
    """An answer that is an error."""

    kind: str
    code: str = ""
    #: That a table refused.
    records: tuple[int, ...] = ()


class Voted(NamedTuple):
    """What a driver learns of the tasks of a batch."""

    #: The attempts that voted, each with its task.
    votes: tuple[tuple[int, int], ...]
    #: What the tasks were given.
    records: tuple[int, ...]


class Driver(NamedTuple):
    """What one driver's process knows."""

    claim: EpochClaim
    #: lock, start, progress, batch, sweep, plan, again, done
    phase: str = "lock"
    #: Where Spark reads on.
    position: int = 0
    #: Where the batch at hand ends; a tick does not move on.
    until: int = 0
    #: The newest batch when the one at hand was planned.
    after: int = 0
    #: Tries of its publisher.
    tries: int = 0
    unsettled: bool = True
    #: Task attempts that it started.
    attempts: int = 0
    #: Answers of the operation at hand, oldest first.
    answers: tuple[object, ...] = ()
    #: How branches ended that are being waited for.
    inbox: tuple[tuple[Gid, Raised | None], ...] = ()
    #: What the tasks of the next batch, which are at work meanwhile, have staged.
    ahead: Voted | None = None
    #: Whether its publish transaction is open, and what that has moved so far.
    is_open: bool = False
    rows: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    #: Whether it was started to look whether a failover left everything in order.
    looks: bool = False


class Budget(NamedTuple):
    """How many faults of each kind may still happen."""

    crashes: int = 0
    #: A second driver is started while the first one works.
    takeovers: int = 0
    #: The server ends the transaction of a paused driver.
    endings: int = 0
    #: A server crashes: what was open is rolled back, and staging is empty.
    outages: int = 0
    #: An answer to COMMIT or COMMIT PREPARED is lost.
    losses: int = 0
    #: A PREPARE is done by the server after its client is gone.
    late: int = 0
    #: A task attempt outlives its driver's interest in it.
    zombies: int = 0
    #: A vote is lost, or counted twice, between the tasks and the driver.
    votes: int = 0
    #: The home database fails over to an earlier prefix.
    home_restores: int = 0
    #: A participant does.
    restores: int = 0
    #: How often the resolver may run.
    resolver: int = 0


class State(NamedTuple):
    """Everything."""

    budget: Budget
    home: Home = Home()
    participants: tuple[Participant, ...] = ()
    #: Live drivers, in the order of their claims.
    drivers: tuple[Driver, ...] = ()
    #: Answers that the running resolver has got; None while it rests.
    resolver: tuple[object, ...] | None = None
    orders: tuple[Order, ...] = ()
    sent: tuple[Sent, ...] = ()
    staged: frozenset[Staged] = frozenset()
    #: Rows that zombies have yet to copy.
    copies: tuple[Staged, ...] = ()
    #: Claims made so far, in every history.
    claims: int = 0
    #: Newest claim that somebody saw under the lock.
    fence: int = 0
    #: A driver refused to start because the databases disagree.
    halted: str = ""
    home_restored: bool = False
    restored: frozenset[int] = frozenset()
    #: Earlier states of the databases, kept while a failover may still happen.
    home_log: tuple[Home, ...] = ()
    log: tuple[tuple[Participant, ...], ...] = ()
    #: Branches that were committed, in whatever history.
    committed: frozenset[Gid] = frozenset()
    #: A rule that a step has broken.
    broken: str = ""


class World(NamedTuple):
    """What is fixed during one exploration."""

    name: str
    budget: Budget
    #: Offsets in Kafka: as many batches of one offset each.
    batches: int = 2
    #: The participants that each offset's records go to, over and over.
    touches: tuple[tuple[int, ...], ...] = ((0, 1), (0,), (0, 1))
    #: Records and the participants whose tables refuse them.
    refused: frozenset[tuple[int, int]] = frozenset()
    #: Whether each record has rows in every participant, not in one.
    everywhere: bool = False
    #: Drivers that claim more often than this go round in circles.
    claims_max: int = 8
    #: Whether the first batch of a driver that starts over takes all that is left.
    wide: bool = False
    #: Whether another pipeline has a branch prepared in participant 0 all the while.
    foreign: bool = False
    #: Whether each record sets a timer, which a tick fires.
    ticks: bool = False
    #: Whether a batch may be staged while the one before it is published.
    ahead: bool = False

    def records(self, first: int, until: int) -> tuple[int, ...]:
        """Number the records of some offsets: task 0 has even ones, task 1 odd ones."""
        return tuple(range(2 * first, 2 * until))

    def goes_to(self, record: int, database: int) -> bool:
        """Tell whether a record's row belongs into a database; home takes all."""
        if database == HOME:
            return True
        record %= FIRED
        if not (self.everywhere or record % 2 == database):
            return False
        return database in self.touches[record // 2 % len(self.touches)]
