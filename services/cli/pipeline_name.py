"""Finds the pipeline's name in the ledger from the argument PIPELINE."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tallyweir.services.produce.python_pipeline import (
    PYTHON_ENDING,
    describe_python_pipeline,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

_FILE_ENDINGS = (".yaml", ".yml", PYTHON_ENDING)


def pipeline_name(argument: str) -> str:
    """Return a name unchanged, or the name inside a pipeline file.

    It reads only the ``pipeline:`` key of a YAML file: a mistake elsewhere must not
    prevent a look at the pipeline.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``.
    """
    if not _is_file(argument):
        return argument
    name = read_pipeline_file(argument).get("pipeline")
    if not isinstance(name, str):
        raise _unreadable(Path(argument), "it has no text under the key pipeline")
    return name


def read_pipeline_file(argument: str) -> Mapping[Any, Any]:
    """Return the unchecked keys of a pipeline file; empty for a pipeline's name.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``.
    """
    if not _is_file(argument):
        return {}
    path = Path(argument)
    if path.suffix == PYTHON_ENDING:
        return describe_python_pipeline(path)
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unreadable(path, " ".join(str(error).split())) from error
    return content if isinstance(content, dict) else {}


def _is_file(argument: str) -> bool:
    return Path(argument).suffix in _FILE_ENDINGS


def _unreadable(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        "PIPELINE_FILE_UNREADABLE",
        saw=f"{path}: {what}.",
        why="The pipeline's name is in its file.",
        fix="Correct the file, or give the pipeline's name instead.",
    )
