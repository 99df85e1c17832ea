"""Put the schemas that an Avro schema refers to where it first names their types.

A registry keeps a named type in a schema of its own, and others refer to it by its full
name. A contract is one schema, which declares each type at its first use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

_NAMED = frozenset({"record", "error", "enum", "fixed"})


def with_references(schema: Any, texts: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
    """Return a schema that needs no other one.

    Args:
        schema: The schema's JSON.
        texts: The schemas that it refers to, directly or not.

    Raises:
        ValueError: A text is not JSON.
    """
    known = {
        _full_name(one["name"], one.get("namespace", "")): one
        for one in map(json.loads, texts)
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    return _Walk(known).of(schema, "")


class _Walk:
    """Walks in the order in which types are declared.

    Args:
        known: The types that are not declared yet, by their full names.
    """

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = dict(known)

    def of(self, node: Any, namespace: str) -> Any:  # noqa: ANN401 - JSON
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return [self.of(one, namespace) for one in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            return self._declared(node, namespace)
        inner = {"array": "items", "map": "values"}.get(str(kind), "type")
        if inner not in node:
            return node
        return {**node, inner: self.of(node[inner], namespace)}

    def _named(self, name: str, namespace: str) -> Any:  # noqa: ANN401 - JSON
        declared = self._known.pop(_full_name(name, namespace), None)
        return name if declared is None else self.of(declared, "")

    def _declared(self, node: Mapping[str, Any], namespace: str) -> Any:  # noqa: ANN401 - JSON
        space = node.get("namespace", namespace)
        name = node.get("name")
        if isinstance(name, str) and "." in name:
            space = name.rpartition(".")[0]
        fields = node.get("fields")
        if not isinstance(fields, list) or not isinstance(space, str):
            return node
        return {
            **node,
            "fields": [
                {**one, "type": self.of(one["type"], space)}
                if isinstance(one, dict) and "type" in one
                else one
                for one in fields
            ],
        }


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
