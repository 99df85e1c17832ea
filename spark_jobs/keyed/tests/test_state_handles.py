"""A key's state in a function's hands, against a model that is plain Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.pipeline.outputs.stateful import (
    ListState,
    MapState,
    StateKind,
    ValueState,
)
from tallyweir.sinks.postgres.outputs.key_text import (
    ENTRY_BYTES_MIN,
    KEY_BYTES_MAX,
    EntryTooLongError,
)
from tallyweir.sinks.postgres.staging.keyed_store import StoredValue
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.keyed.state_handles import (
    KeyState,
    ListHandle,
    MapHandle,
    StateChange,
    StateVersion,
    ValueHandle,
)

_KINDS: dict[str, StateKind] = {
    "value": ValueState(0),
    "map": MapState(),
    "list": ListState(),
}
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


class _Table:
    """What the publish transaction makes of changes; and what a function reads."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[str, int]] = {}
        self.reads = 0

    def read_entry(self, key: str, name: str, entry: str) -> StoredValue | None:
        self.reads += 1
        assert "k" == key
        return self._stored(name, entry)

    def read_entries(self, key: str, name: str) -> list[StoredValue]:
        self.reads += 1
        assert "k" == key
        found = [self._stored(n, entry) for n, entry in sorted(self.rows) if n == name]
        return [one for one in found if one is not None]

    def apply(self, changes: Iterable[StateChange], version: int) -> None:
        """Clear, delete, put: in the order of the publish transaction."""
        changes = list(changes)
        places = [(c.name, c.entry, c.change == "clear") for c in changes]
        assert len(places) == len(set(places)), "an entry is changed twice"
        for change in changes:
            if change.change == "clear":
                self.rows = {
                    at: row for at, row in self.rows.items() if at[0] != change.name
                }
        for change in changes:
            if change.change == "delete":
                self.rows.pop((change.name, change.entry), None)
        for change in changes:
            if change.change == "put":
                assert change.value is not None
                self.rows[change.name, change.entry] = (change.value, version)

    def _stored(self, name: str, entry: str) -> StoredValue | None:
        row = self.rows.get((name, entry))
        if row is None:
            return None
        return StoredValue(entry=entry, value=row[0], schema_version=row[1])


def _batch(
    table: _Table, sequence: int, version: StateVersion | None = None
) -> KeyState:
    version = version or StateVersion(number=1, migrate=None)
    state = KeyState("k", _KINDS, table, version, sequence=sequence)
    state.take("value", table._stored("value", ""))
    return state


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _VALUES),
        st.tuples(st.just("forget"), st.none()),
        st.tuples(st.just("append"), _VALUES),
        st.tuples(st.just("replace"), st.lists(_VALUES, max_size=3)),
        st.tuples(st.just("clear list"), st.none()),
        st.tuples(st.just("put"), st.tuples(st.sampled_from("abc"), _VALUES)),
        st.tuples(st.just("delete"), st.sampled_from("abc")),
        st.tuples(st.just("clear map"), st.none()),
        st.tuples(st.just("look"), st.sampled_from("abc")),
        st.tuples(st.just("look at all"), st.none()),
    ),
    max_size=8,
)


class _Plain:
    """The same state as plain Python, changed side by side with the handles."""

    def __init__(self) -> None:
        self.value: Any = 0
        self.map: dict[str, Any] = {}
        self.list: list[Any] = []

    def step(self, state: KeyState, step: str, given_value: Any) -> None:  # noqa: ANN401
        one, some, many = state["value"], state["map"], state["list"]
        assert isinstance(one, ValueHandle)
        assert isinstance(some, MapHandle)
        assert isinstance(many, ListHandle)
        match step:
            case "set":
                one.value = self.value = given_value
            case "forget":
                one.clear()
                self.value = 0
            case "append":
                many.append(given_value)
                self.list.append(given_value)
            case "replace":
                many.replace(given_value)
                self.list = list(given_value)
            case "clear list":
                many.clear()
                self.list = []
            case _:
                self._step_map(some, step, given_value)
        assert self.value == one.value

    def _step_map(self, some: MapHandle, step: str, given_value: Any) -> None:  # noqa: ANN401
        match step:
            case "put":
                some[given_value[0]] = self.map[given_value[0]] = given_value[1]
            case "delete":
                del some[given_value]
                self.map.pop(given_value, None)
            case "clear map":
                some.clear()
                self.map = {}
            case "look":
                assert self.map.get(given_value) == some.get(given_value)
                assert (given_value in self.map) == (given_value in some)
            case "look at all":
                assert sorted(self.map) == [entry for entry, _ in some.items()]
                assert self.map == dict(some.items())


@given(batches=st.lists(_STEPS, max_size=5))
def test_any_history_over_batches_is_that_of_plain_python(
    batches: list[list[tuple[str, Any]]],
) -> None:
    """Whatever is read, written and cleared, each batch finds what the last left."""
    table = _Table()
    plain = _Plain()
    for sequence, steps in enumerate(batches, start=1):
        state = _batch(table, sequence)
        for step, given_value in steps:
            plain.step(state, step, given_value)
        table.apply(state.changes(), version=1)
    state = _batch(table, len(batches) + 1)
    assert plain.value == state["value"].value  # type: ignore[union-attr]
    assert plain.list == state["list"].read()  # type: ignore[union-attr]
    assert plain.map == dict(state["map"].items())  # type: ignore[union-attr]
    assert not state.changes(), "reading is no change"


def test_appending_and_clearing_read_nothing() -> None:
    """A long list costs what is added to it."""
    table = _Table()
    state = _batch(table, 1)
    state["list"].append(1)  # type: ignore[union-attr]
    state["map"].clear()
    state["map"]["a"] = 2  # type: ignore[index]
    changes = state.changes()
    assert 0 == table.reads
    assert [("map", "", "clear"), ("map", "a", "put")] == [
        (c.name, c.entry, c.change) for c in changes if c.name == "map"
    ]


def test_an_older_value_is_migrated_once_and_written_anew() -> None:
    """The next batch finds it in its new shape."""
    table = _Table()
    table.rows["value", ""] = (json.dumps(5), 1)
    version = StateVersion(number=2, migrate=lambda name, old, of: [name, old, of])
    state = _batch(table, 2, version)
    assert ["value", 5, 1] == state["value"].value  # type: ignore[union-attr]
    table.apply(state.changes(), version=2)
    assert not _batch(table, 3, version).changes()


def _unchanged(_name: str, value: object, _version: int) -> object:
    return value


@pytest.mark.parametrize(("stored", "migrate"), [(1, None), (3, _unchanged)])
def test_a_version_without_a_way_to_it_is_refused(
    stored: int, migrate: Callable[[str, Any, int], Any] | None
) -> None:
    """Neither is an older value taken as it is, nor a newer one."""
    table = _Table()
    table.rows["value", ""] = ("5", stored)
    with pytest.raises(ConfigurationError) as raised:
        _batch(table, 2, StateVersion(number=2, migrate=migrate))
    assert "STATE_VERSION" == raised.value.code


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", object()])
def test_what_json_does_not_hold_is_refused(value: object) -> None:
    """Before anything is staged."""
    state = _batch(_Table(), 1)
    state["value"].value = value  # type: ignore[union-attr]
    with pytest.raises((TypeError, ValueError)):
        state.changes()


@pytest.mark.parametrize("key", [1, None, "a\x00", "\ud800"])
def test_a_maps_keys_are_text_that_postgres_holds(key: object) -> None:
    """Anything else fails where it is used."""
    state = _batch(_Table(), 1)
    with pytest.raises((TypeError, ValueError)):
        state["map"][key] = 1  # type: ignore[index]


def test_a_maps_key_is_as_long_as_the_index_has_room_beside_the_key() -> None:
    """What a longer one holds cannot be there, so reading it finds nothing."""
    state = _batch(_Table(), 1)
    some = state["map"]
    assert isinstance(some, MapHandle)
    # The key of these tests has one byte.
    longest = "é" + "x" * (KEY_BYTES_MAX + ENTRY_BYTES_MIN - 3)
    some[longest] = 1
    with pytest.raises(EntryTooLongError, match="2256 bytes; beside this key 2255"):
        some[longest + "x"] = 2
    assert longest + "x" not in some
    assert [longest] == [change.entry for change in state.changes()]


@pytest.mark.parametrize("size", [KEY_BYTES_MAX, 9_000])
def test_values_and_lists_fit_beside_any_key(size: int) -> None:
    """Also one that was stored when there was no limit yet."""
    key = "k" * size
    version = StateVersion(number=1, migrate=None)
    state = KeyState(key, _KINDS, _Table(), version, sequence=2**63 - 1)
    some = state["list"]
    assert isinstance(some, ListHandle)
    some.append(1)
    state["value"].value = 2  # type: ignore[union-attr]
    assert 2 == len(state.changes())
