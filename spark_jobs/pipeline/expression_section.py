"""Sections that hold Spark SQL by name."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.pipeline.yaml_document import Section


def read_expressions(section: Section) -> Iterator[tuple[str, str]]:
    """Read SQL by name; stop where YAML has cut an expression in two."""
    for key in section:
        text = section.text(key)
        if text is None:
            continue
        if text.count("(") > text.count(")"):
            section.reject(
                key,
                f"The expression ends at {text!r}.",
                "Between braces, YAML ends a value at a comma.",
                "Put quotation marks around the whole expression.",
            )
            return
        yield key, text
