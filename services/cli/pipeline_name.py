"""From what a user types for PIPELINE to the name that the ledger knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from services.produce.python_pipeline import PYTHON_ENDING, describe_python_pipeline
from sinks.protocol.errors import ConfigurationError

_FILE_ENDINGS = (".yaml", ".yml", PYTHON_ENDING)


def pipeline_name(argument: str) -> str:
    """Return a name as it is, and the name inside of a pipeline file.

    Of a YAML file only the ``pipeline:`` key is read: a mistake elsewhere must not
    keep anyone from looking at what its pipeline did.

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
    """Return the keys of a pipeline file as they are; none for a pipeline's name.

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
