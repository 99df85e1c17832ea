"""The page of the Python API has every public name, with its real parameters."""

from __future__ import annotations

import enum
import inspect
import re
import subprocess
import sys
from pathlib import Path

import tallyweir

_ROOT = Path(__file__).resolve().parents[3]
_PAGE = _ROOT / "docs" / "python.md"
_ROW = re.compile(r"^\| `(\w+)` \| `(.+?)` \| (.*?)\| .+ \|$", re.MULTILINE)


def _described() -> dict[str, str]:
    """The page's text about each name."""
    parts = _PAGE.read_text("utf-8").split("\n### ")[1:]
    return {part.partition("\n")[0]: part for part in parts}


def test_every_public_name_is_described() -> None:
    """And no other."""
    assert set(_described()) == {*tallyweir.__all__, "open_slice"}


def test_parameters_are_those_of_the_code() -> None:
    """Names, types, order, and which of them may be left out."""
    described, real = {}, {}
    for name, text in _described().items():
        one = getattr(tallyweir, name)
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


def test_the_package_loads_nothing_before_a_name_is_used() -> None:
    """Services have neither Arrow nor Spark, and each of their modules imports it."""
    program = "import sys, tallyweir; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(_ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name for name in done.stdout.split() if name.startswith("tallyweir.")}
    assert loaded == set()


def test_all_names_can_be_imported_without_spark() -> None:
    """A service reads Python pipelines, and has neither Arrow's tables nor Spark."""
    program = (
        "import sys; sys.modules.update(pandas=None, pyspark=None, pgpq=None)\n"
        "from tallyweir import *\nprint(Pipeline.__name__, load_pipeline.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(_ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[0] == "Pipeline"


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    """As of any other module, so that hasattr works."""
    assert not hasattr(tallyweir, "AppendedOutput")
