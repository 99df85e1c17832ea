"""The fields of a topic's documents as a tree, and the columns that they become.

The tree is bounded: names beyond ``NAMES_MAX``, and below ``DEPTH_MAX`` levels, are not
noted by themselves. In the pipeline they stay in the column ``rest``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tallyweir.schemas.formats.json.json_fields import write_path
from tallyweir.schemas.formats.json.json_text import Value
from tallyweir.schemas.pipeline.checks.names import RESERVED_COLUMNS, check_column
from tallyweir.services.look.field_profile import FieldProfile, InferredType

NAMES_MAX = 1_000
DEPTH_MAX = 6
#: An object with more names is a map, whose names are values.
MEMBERS_MAX = 64
COLUMNS_MAX = 200
_NAME_BYTES_MAX = 63
_REST = "rest"
_NO_LETTERS = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(slots=True)
class FieldNode:
    """A field, and the fields inside it."""

    profile: FieldProfile = field(default_factory=FieldProfile)
    members: dict[str, FieldNode] = field(default_factory=dict)
    is_map: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedField:
    """A field that becomes a column.

    Attributes:
        path: The names that lead to it.
        column: The column's name.
        type: Its type.
        profile: Its values.
        lacking: How many documents have no value here.
    """

    path: tuple[str, ...]
    column: str
    type: InferredType
    profile: FieldProfile
    lacking: int

    @property
    def name(self) -> str:
        """The path as a pipeline file has it."""
        return write_path(self.path)


@dataclass(slots=True)
class DocumentFields:
    """The fields of all documents.

    Attributes:
        documents: How many were noted.
        is_full: Whether there are names that are not noted.
    """

    root: FieldNode = field(default_factory=FieldNode)
    documents: int = 0
    names: int = 0
    is_full: bool = False

    def add(self, document: dict[str, Value]) -> None:
        """Note a document."""
        self.documents += 1
        self._add_members(self.root, document, 1)

    def list_fields(self) -> list[LookedField]:
        """List the fields that become columns, in the order of the documents."""
        taken = {_REST}
        found: list[LookedField] = []
        for path, node in self.leaves():
            if len(found) == COLUMNS_MAX:
                self.is_full = True
                break
            column = _column_of(path, taken)
            taken.add(column.casefold())
            found.append(
                LookedField(
                    path=path,
                    column=column,
                    type=node.profile.infer(path[-1]),
                    profile=node.profile,
                    lacking=self.documents - node.profile.values,
                )
            )
        return found

    def leaves(self) -> Iterator[tuple[tuple[str, ...], FieldNode]]:
        """Yield the fields that become columns, if there is no bound on these."""
        return _leaves(self.root, ())

    def _add_members(
        self, node: FieldNode, members: dict[str, Value], depth: int
    ) -> None:
        for name, value in members.items():
            inner = node.members.get(name)
            if inner is None:
                inner = self._new_member(node, name)
                if inner is None:
                    continue
            inner.profile.add(value)
            if isinstance(value, dict) and not inner.is_map and depth < DEPTH_MAX:
                self._add_members(inner, value, depth + 1)

    def _new_member(self, node: FieldNode, name: str) -> FieldNode | None:
        is_inside = node is not self.root
        if is_inside and len(node.members) >= MEMBERS_MAX:
            self.names -= len(node.members)
            node.members.clear()
            node.is_map = True
        if node.is_map:
            return None
        if self.names >= NAMES_MAX:
            self.is_full = True
            return None
        self.names += 1
        inner = node.members[name] = FieldNode()
        return inner


def _leaves(
    node: FieldNode, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], FieldNode]]:
    for name, inner in node.members.items():
        if not _is_writable(name):
            continue
        at = (*path, name)
        is_divided = inner.profile.is_object and bool(inner.members)
        if is_divided and all(map(_is_writable, inner.members)):
            yield from _leaves(inner, at)
        else:
            yield at, inner


def _is_writable(name: str) -> bool:
    """Whether a path can hold the name."""
    return (
        bool(name) and '"' not in name and name == name.strip() and name.isprintable()
    )


def _column_of(path: tuple[str, ...], taken: set[str]) -> str:
    column = "_".join(path)
    if _is_free(column, taken):
        return column
    plain = _NO_LETTERS.sub("_", column).strip("_") or "field"
    if plain[0].isdigit():
        plain = f"_{plain}"
    plain = plain[: _NAME_BYTES_MAX - 4]
    wished = [plain, f"{plain}_", *(f"{plain}_{number}" for number in range(2, 1_000))]
    return next(one for one in wished if _is_free(one, taken))


def _is_free(column: str, taken: set[str]) -> bool:
    is_new = column.casefold() not in taken | RESERVED_COLUMNS
    return is_new and not list(check_column(column, ("field",)))
