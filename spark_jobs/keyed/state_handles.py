"""Handles that let a function read and change the state of one key.

Values are JSON values. A handle reads only what the function asks for, and notes the
net change: an entry that is set twice is written once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tallyweir.schemas.pipeline.outputs.stateful import (
    Json,
    ListState,
    MapState,
    StateKind,
    ValueState,
)
from tallyweir.sinks.postgres.outputs.key_text import check_entry
from tallyweir.sinks.postgres.staging.keyed_store import StoredValue
from tallyweir.sinks.protocol.errors import ConfigurationError

_NOT_TEXT = "\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One row of a key's state to write or delete.

    ``change`` is ``put``, ``delete``, or ``clear`` for all entries of the name.
    """

    name: str
    entry: str
    change: str
    value: str | None


class StateReader(Protocol):
    """Reads the stored state of one output."""

    def read_entry(self, key: str, name: str, entry: str) -> StoredValue | None: ...

    def read_entries(self, key: str, name: str) -> list[StoredValue]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVersion:
    """The current version of stored values, and the migration of older ones."""

    number: int
    migrate: Callable[[str, Json, int], Json] | None

    def is_old(self, stored: StoredValue) -> bool:
        """Return whether a value needs migration.

        Raises:
            ConfigurationError: ``STATE_VERSION``: the value is of a newer version, or
                of an older one without a migrate function.
        """
        if stored.schema_version == self.number:
            return False
        if stored.schema_version < self.number and self.migrate is not None:
            return True
        raise ConfigurationError(
            "STATE_VERSION",
            saw=f"A key has state of version {stored.schema_version}; the function is "
            f"of version {self.number}"
            + ("." if self.migrate else " and has no migrate function."),
            why="The function may misread the state.",
            fix="Raise version and give a migrate function, or restore the former "
            "code.",
        )


class _Entries:
    """The entries of one name of one key: stored values and changes."""

    def __init__(
        self, key: str, name: str, reader: StateReader, version: StateVersion
    ) -> None:
        self._key = key
        self._name = name
        self._reader = reader
        self._version = version
        self._known: dict[str, Json] = {}
        self._absent: set[str] = set()
        self._is_whole = False
        self._is_cleared = False
        self._changed: set[str] = set()

    def take(self, stored: StoredValue | None) -> None:
        """Note an entry as it is stored; migrate and write back an old one.

        None stands for a single value that does not exist.
        """
        if stored is None:
            self._absent.add("")
            return
        if stored.entry in self._known or stored.entry in self._absent:
            return
        value = json.loads(stored.value)
        if self._version.is_old(stored):
            assert self._version.migrate is not None
            value = self._version.migrate(self._name, value, stored.schema_version)
            self._changed.add(stored.entry)
        self._known[stored.entry] = value

    def get(self, entry: str, default: Json) -> Json:
        if entry not in self._known and entry not in self._absent:
            found = None
            if not (self._is_whole or self._is_cleared):
                found = self._reader.read_entry(self._key, self._name, entry)
            if found is None:
                self._absent.add(entry)
            else:
                self.take(found)
        return self._known.get(entry, default)

    def all(self) -> dict[str, Json]:
        if not (self._is_whole or self._is_cleared):
            for stored in self._reader.read_entries(self._key, self._name):
                self.take(stored)
        self._is_whole = True
        return dict(sorted(self._known.items()))

    def put(self, entry: str, value: Json) -> None:
        check_entry(self._key, entry)
        self._known[entry] = value
        self._absent.discard(entry)
        self._changed.add(entry)

    def delete(self, entry: str) -> None:
        self._known.pop(entry, None)
        self._absent.add(entry)
        self._changed.add(entry)

    def clear(self) -> None:
        self._known.clear()
        self._absent.clear()
        self._changed.clear()
        self._is_cleared = True

    def changes(self) -> Iterator[StateChange]:
        if self._is_cleared:
            yield StateChange(name=self._name, entry="", change="clear", value=None)
        for entry in sorted(self._changed):
            if entry in self._known:
                text = _encode(self._known[entry])
                yield StateChange(
                    name=self._name, entry=entry, change="put", value=text
                )
            elif not self._is_cleared:
                yield StateChange(
                    name=self._name, entry=entry, change="delete", value=None
                )


class ValueHandle:
    """One value of a key."""

    def __init__(self, entries: _Entries, default: Json) -> None:
        self._entries = entries
        self._default = default

    @property
    def value(self) -> Json:
        """The value; the default before it is set, and after it is cleared or expires.

        To change it, assign to it: a list that is changed in place is not written.
        """
        return self._entries.get("", self._default)

    @value.setter
    def value(self, value: Json) -> None:
        self._entries.put("", value)

    def clear(self) -> None:
        """Forget the value."""
        self._entries.delete("")


class MapHandle:
    """A map of a key; reading or writing one entry touches no other entry."""

    def __init__(self, entries: _Entries) -> None:
        self._entries = entries

    def get(self, entry: str, default: Json = None) -> Json:
        """Return an entry, or the default if there is none."""
        return self._entries.get(_check_text(entry), default)

    def __getitem__(self, entry: str) -> Json:
        missing = object()
        found = self.get(entry, missing)
        if found is missing:
            raise KeyError(entry)
        return found

    def __contains__(self, entry: str) -> bool:
        missing = object()
        return self.get(entry, missing) is not missing

    def __setitem__(self, entry: str, value: Json) -> None:
        """Set an entry.

        Raises:
            TypeError, ValueError: The entry's key is not text that Postgres can store.
            EntryTooLongError: The entry's key is too long.
        """
        self._entries.put(_check_text(entry), value)

    def __delitem__(self, entry: str) -> None:
        self._entries.delete(_check_text(entry))

    def items(self) -> list[tuple[str, Json]]:
        """Read the whole map, ordered by its keys."""
        return list(self._entries.all().items())

    def clear(self) -> None:
        """Forget every entry, without reading them."""
        self._entries.clear()


class ListHandle:
    """A list of a key; appending reads nothing.

    Elements are in the order of batches, and within a batch in the order of appending.
    """

    def __init__(self, entries: _Entries, sequence: int) -> None:
        self._entries = entries
        self._sequence = sequence
        self._appended = 0

    def append(self, value: Json) -> None:
        """Add an element at the end."""
        self._entries.put(f"{self._sequence:016x}.{self._appended:08x}", value)
        self._appended += 1

    def read(self) -> list[Json]:
        """Read the whole list."""
        return list(self._entries.all().values())

    def replace(self, values: list[Json]) -> None:
        """Replace all elements."""
        self._entries.clear()
        for value in values:
            self.append(value)

    def clear(self) -> None:
        """Forget every element, without reading them."""
        self._entries.clear()


Handle = ValueHandle | MapHandle | ListHandle


class KeyState(Mapping[str, Handle]):
    """The state of one key: a handle for each name that the output declares.

    Args:
        key: The key as it is stored.
        kinds: Declared kinds of state by name.
        reader: Reads the stored state.
        version: Version of the state.
        sequence: Sequence of the batch; the elements that it appends follow all others.
    """

    def __init__(
        self,
        key: str,
        kinds: Mapping[str, StateKind],
        reader: StateReader,
        version: StateVersion,
        *,
        sequence: int,
    ) -> None:
        self._entries = {name: _Entries(key, name, reader, version) for name in kinds}
        self._handles: dict[str, Handle] = {}
        for name, kind in kinds.items():
            entries = self._entries[name]
            match kind:
                case ValueState(default):
                    self._handles[name] = ValueHandle(entries, default)
                case MapState():
                    self._handles[name] = MapHandle(entries)
                case ListState():
                    self._handles[name] = ListHandle(entries, sequence)

    def take(self, name: str, stored: StoredValue | None) -> None:
        """Note a value that was read ahead, or that it does not exist."""
        self._entries[name].take(stored)

    def changes(self) -> list[StateChange]:
        """Return the net changes, each entry at most once.

        Raises:
            TypeError, ValueError: A value is not a JSON value.
        """
        return [one for entries in self._entries.values() for one in entries.changes()]

    def __getitem__(self, name: str) -> Handle:
        return self._handles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handles)

    def __len__(self) -> int:
        return len(self._handles)


def _encode(value: Json) -> str:
    # Escape non-ASCII characters, so that Postgres accepts any text.
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _check_text(entry: str) -> str:
    if not isinstance(entry, str):
        raise TypeError(f"a map's keys are text, not {type(entry).__name__}")
    if _NOT_TEXT in entry:
        raise ValueError("a map's key has a zero character, which no text column holds")
    entry.encode()
    return entry
