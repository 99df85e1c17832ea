"""From what a user types for PIPELINE to the name that the ledger knows."""

from __future__ import annotations

from pathlib import Path

import yaml

from sinks.protocol.errors import ConfigurationError

_FILE_ENDINGS = (".yaml", ".yml")


def pipeline_name(argument: str) -> str:
    """Return a name as it is, and the name inside of a pipeline file.

    Only the file's ``pipeline:`` key is read: a file with a mistake elsewhere must
    not keep anyone from looking at what its pipeline did.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``.
    """
    path = Path(argument)
    if path.suffix not in _FILE_ENDINGS:
        return argument
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unreadable(path, " ".join(str(error).split())) from error
    name = content.get("pipeline") if isinstance(content, dict) else None
    if not isinstance(name, str):
        raise _unreadable(path, "it has no text under the key pipeline")
    return name


def _unreadable(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        "PIPELINE_FILE_UNREADABLE",
        saw=f"{path}: {what}.",
        why="The pipeline's name is in its file.",
        fix="Correct the file, or give the pipeline's name instead.",
    )
