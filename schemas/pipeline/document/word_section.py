"""Reads keys of a pipeline file that have one of a few words."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from schemas.pipeline.checks.problems import suggest
from schemas.pipeline.document.yaml_document import Section

Word = TypeVar("Word", bound=StrEnum)


def read_word(section: Section, key: str, default: Word) -> Word:
    """Read one of the words of an enumeration."""
    text = section.text(key)
    words = type(default)
    if text is None:
        return default
    if text not in set(words):
        known = [word.value for word in words]
        section.reject(
            key,
            f"{key} is {text!r}.",
            f"It must be one of {', '.join(known)}.",
            suggest(text, known),
        )
        return default
    return words(text)
