"""What must be true of the databases after every step of a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tallyweir.sinks.protocol.in_doubt import GlobalId
from tallyweir.sinks.testing.memory_home import DatabaseState
from tallyweir.sinks.testing.planned_batches import (
    HOME,
    RESULTS,
    TICKS,
    Position,
    key_of,
)
from tallyweir.sinks.testing.simulation.world import LOG_END, STRANGER, World


class Checker:
    """Compares the databases of a world with the topic and with each other.

    Attributes:
        restores: How often a database went back in time.
        is_torn: Whether a database went back, and the databases were not yet found to
            agree while no actor worked. Until then they may differ.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.restores = 0
        self._expectations: dict[tuple[str, tuple[int, ...]], frozenset[Position]] = {}
        self.is_torn = False

    def note_restore(self) -> None:
        """Take note that a database went back in time, alone or with all others.

        Databases that went back together may differ too: a driver that has just decided
        a batch may still commit branches that home no longer knows.
        """
        self.restores += 1
        self.is_torn = True

    def differences(self) -> Mapping[str, list[GlobalId]]:
        """Return the branches about which home and the others disagree, by name.

        A decided branch must be prepared or committed, and a committed branch must be
        decided.
        """
        found: dict[str, list[GlobalId]] = {}
        decided = set(self._world.home.state.decided)
        for name, database in self._world.others.items():
            state = database.state
            here = {gid for gid in decided if gid.database == name}
            marked = set(state.markers.values())
            for gid in sorted((here - marked - state.prepared.keys()) | marked - here):
                found.setdefault(gid.branch, []).append(gid)
        return found

    def check(self, *, at_rest: bool) -> None:
        """Check everything that holds at any moment.

        Args:
            at_rest: Whether no actor is in the middle of a batch, and no statement is
                under way, which might yet decide or commit what a restore has taken
                away.

        Raises:
            AssertionError: Something does not hold.
        """
        home = self._world.home.state
        _check_ledger(home)
        self._check_home_rows(home)
        for gid in home.noted:
            committed = self._world.others[gid.database].ever_committed
            assert gid in committed, f"{gid} is noted but was never committed"
        differences = self.differences()
        if differences:
            assert self.is_torn, f"databases differ by themselves: {differences}"
        for name in self._world.others:
            self._check_other_rows(name, is_behind=bool(differences))
        in_doubt = {
            gid
            for gid in home.decided
            if gid in self._world.others[gid.database].state.prepared
        }
        if at_rest and not differences and not in_doubt:
            self.is_torn = False
        if not self.is_torn:
            shown = {g for g in in_doubt if g.sequence <= home.visible_through}
            assert not shown, f"readers are shown what is in doubt: {sorted(shown)}"

    def check_end(self) -> None:
        """Check what holds once every fault has ceased and all work is done."""
        self.check(at_rest=True)
        home = self._world.home.state
        assert not self.differences()
        assert self._world.is_read
        assert home.visible_through == len(home.ledger)
        for name, database in self._world.others.items():
            mine = set(database.state.prepared) - {STRANGER}
            assert not mine, f"left prepared in {name}: {sorted(mine)}"
            assert set(database.state.rows) == self._world.owned[name]
        assert STRANGER in self._world.others["billing"].state.prepared

    def _expected(self, name: str) -> frozenset[Position]:
        """Return the records that a database must hold, by home's offsets."""
        positions = self._world.home.state.positions
        until = tuple(
            positions[tp].next_offset if tp in positions else 0 for tp in LOG_END
        )
        known = self._expectations.get((name, until))
        if known is None:
            ends = dict(zip(LOG_END, until, strict=True))
            owned = self._world.owned[name]
            known = frozenset(p for p in owned if p[1] < ends[p[0]])
            self._expectations[name, until] = known
        return known

    def _check_home_rows(self, home: DatabaseState) -> None:
        rows = home.tables.get(RESULTS, ())
        present = set(rows)
        assert len(rows) == len(present), "home holds a record twice"
        assert present == self._expected(HOME), "home's rows disagree with its offsets"
        ticks = sum(entry.key.spark_batch_id is None for entry in home.ledger)
        counted = Counter(map(key_of, rows)) + Counter({TICKS: ticks})
        assert counted == Counter(home.keyed), "keyed state disagrees with the rows"

    def _check_other_rows(self, name: str, *, is_behind: bool) -> None:
        state = self._world.others[name].state
        present = set(state.rows)
        assert len(state.rows) == len(present), f"{name} holds a record twice"
        assert present <= self._world.owned[name], f"{name} holds what is not its own"
        if is_behind:
            return
        in_doubt = {
            position
            for gid in self._world.home.state.decided
            if gid.database == name
            for position in state.prepared.get(gid, ())
        }
        assert not present & in_doubt, f"{name} is about to hold a record twice"
        assert present | in_doubt == self._expected(name), (
            f"the rows of {name} disagree with home's offsets"
        )


def _check_ledger(home: DatabaseState) -> None:
    """Check the home database alone: its epochs, sequences, offsets and counts."""
    assert list(home.claims) == list(range(1, len(home.claims) + 1))
    ends = dict.fromkeys(LOG_END, 0)
    epoch = 0
    for number, entry in enumerate(home.ledger, start=1):
        assert entry.sequence == number, "the sequence has a gap"
        assert entry.key.epoch >= epoch, "an older epoch published after a newer one"
        epoch = entry.key.epoch
        for covered in entry.ranges:
            tp = covered.topic_partition
            assert ends[tp] == covered.from_offset, "offsets have a gap or an overlap"
            ends[tp] = covered.until_offset
    for tp, position in home.positions.items():
        assert ends[tp] == position.next_offset
    sequences = [gid.sequence for gid in home.decided]
    assert sequences == sorted(sequences)
    assert len({(g.branch, g.sequence) for g in home.decided}) == len(sequences)
