"""Describe Python pipeline files as the keys that a YAML file would have."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import lru_cache
from pathlib import Path
from typing import Any

from tallyweir.schemas.errors import ContractError
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    TallyweirError,
    describe_error,
)

PYTHON_ENDING = ".py"


def describe_python_pipeline(path: Path) -> Mapping[str, Any]:
    """Return the keys of a Python pipeline file that producers and audits read.

    It runs the file, once in this process for each change of it. What the file prints
    is dropped.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``, with the file's own error.
    """
    changed_ns = path.stat().st_mtime_ns if path.exists() else 0
    return _describe(path.absolute(), changed_ns)


@lru_cache
def _describe(path: Path, _changed_ns: int) -> Mapping[str, Any]:
    from tallyweir.schemas.pipeline import HeaderId, load_pipeline  # noqa: PLC0415 - takes time

    try:
        with redirect_stdout(io.StringIO()):
            pipeline = load_pipeline(path)
    except (TallyweirError, ContractError) as error:
        told = " ".join(" ".join(describe_error(error)).split())
        raise ConfigurationError(
            "PIPELINE_FILE_UNREADABLE",
            saw=f"{path}: {told}.",
            why="Only running its file shows the name and the source of a Python "
            "pipeline.",
            fix="Correct the file, or give the pipeline's name where the command "
            "accepts one.",
        ) from error
    source, event_id = pipeline.source, pipeline.source.event_id
    return {
        "pipeline": pipeline.name,
        "source": {
            "topic": list(source.topics),
            "schema": list(source.schemas),
            "event_id": f"header:{event_id.header}"
            if isinstance(event_id, HeaderId)
            else event_id,
        },
        "databases": dict(pipeline.databases),
        "outputs": [
            {"table": output.table}
            if output.sends_to is None
            else {"outbox": {"topic": output.sends_to}}
            for output in pipeline.outputs
        ],
    }
