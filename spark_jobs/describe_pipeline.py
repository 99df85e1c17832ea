"""``python -m spark_jobs.describe_pipeline FILE.py``: what other processes must know.

A Python pipeline file is known only by running it, which is left to this package; the
services read what is printed here, in the shape of a YAML pipeline file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from schemas.errors import ContractError
from schemas.pipeline import HeaderId, Pipeline, load_pipeline
from schemas.pipeline.definition_json import (
    source_schema_json,
    source_topic_json,
)
from sinks.protocol.errors import TallyweirError, describe_error


def describe(pipeline: Pipeline) -> dict[str, Any]:
    """Return the keys of a pipeline file that producers and audits read."""
    source = pipeline.source
    return {
        "pipeline": pipeline.name,
        "source": {
            "topic": source_topic_json(source),
            "schema": source_schema_json(source),
            "event_id": f"header:{source.event_id.header}"
            if isinstance(source.event_id, HeaderId)
            else source.event_id,
        },
        "databases": dict(pipeline.databases),
        "outputs": [
            {"table": output.table}
            if output.sends_to is None
            else {"outbox": {"topic": output.sends_to}}
            for output in pipeline.outputs
        ],
    }


def main() -> int:
    """Describe the pipeline of a file; the exit code is 0 unless it has a mistake."""
    try:
        description = describe(load_pipeline(Path(sys.argv[1])))
    except (TallyweirError, ContractError) as error:
        sys.stderr.write("\n".join(describe_error(error)) + "\n")
        return error.exit_code
    # What the file itself has printed comes before it.
    sys.stdout.write("\n" + json.dumps(description) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
