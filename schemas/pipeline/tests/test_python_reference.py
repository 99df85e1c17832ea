"""The page of the Python API has every public name, with its real parameters."""

from __future__ import annotations

import enum
import inspect
import re
from pathlib import Path

from schemas import pipeline

_PAGE = Path(__file__).parents[3] / "docs" / "python.md"
_ROW = re.compile(r"^\| `(\w+)` \| `(.+?)` \| (.*?)\| .+ \|$", re.MULTILINE)


def _described() -> dict[str, str]:
    """The page's text about each name."""
    parts = _PAGE.read_text("utf-8").split("\n### ")[1:]
    return {part.partition("\n")[0]: part for part in parts}


def test_every_public_name_is_described() -> None:
    """And no other."""
    assert sorted(_described()) == sorted(pipeline.__all__)


def test_parameters_are_those_of_the_code() -> None:
    """Names, types, order, and which of them may be left out."""
    described, real = {}, {}
    for name, text in _described().items():
        one = getattr(pipeline, name)
        if isinstance(one, type) and issubclass(one, enum.Enum):
            described[name] = re.findall(r"`(\w+)`", text.partition("Members: ")[2])
            real[name] = [member.name for member in one]
        elif name not in {"Output", "PipelineError"}:
            described[name] = [
                f"{parameter}: {kind}{' =' if default.strip() else ''}"
                for parameter, kind, default in _ROW.findall(text.replace("\\|", "|"))
            ]
            real[name] = [
                f"{p.name}: {p.annotation}"
                f"{'' if p.default is inspect.Parameter.empty else ' ='}"
                for p in inspect.signature(one).parameters.values()
            ]
    assert described == real
