"""Reads sections that hold Spark SQL by name."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.pipeline.document.yaml_document import Section


def read_expressions(section: Section) -> Iterator[tuple[str, str]]:
    """Yield SQL by name; stop at an expression that YAML has cut in two."""
    for key in section:
        text = section.text(key)
        if text is None:
            continue
        if _is_cut(section, key, text):
            return
        yield key, text


def read_condition(section: Section, key: str) -> str | None:
    """Read the SQL of a key; None if it is absent, or cut in two by YAML."""
    text = section.text(key)
    return None if text is None or _is_cut(section, key, text) else text


def _is_cut(section: Section, key: str, text: str) -> bool:
    if text.count("(") <= text.count(")"):
        return False
    section.reject(
        key,
        f"The expression ends at {text!r}.",
        "Between braces, YAML ends a value at a comma.",
        "Put quotation marks around the whole expression.",
    )
    return True
