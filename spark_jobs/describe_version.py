"""``tallyweir.spark_jobs.describe_version FILE``: what a pipeline file would run as.

What types its columns have, only Spark knows; so a plan or an update, which need the
tables that a version makes, have them told by this process. It changes nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.spark_jobs.engine.program import read_pipeline, run_program


def describe_version(pipeline_file: Path) -> dict[str, Any]:
    """Return the pipeline's name and its version, as the ledger would keep them.

    Raises:
        TallyweirError: As a driver with that file would before its first claim.
        ContractError: A contract cannot be used.
    """
    pipeline, settings = read_pipeline(pipeline_file)
    # Spark takes seconds to import; mistakes in the pipeline are told before.
    from tallyweir.spark_jobs.batches.prepared_pipeline import (  # noqa: PLC0415
        prepare_pipeline,
        read_pipeline_files,
    )
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415

    with explaining_lost_jvm():
        files = read_pipeline_files(
            pipeline, pipeline_file, settings.home_dsn, newest=True
        )
        prepared = prepare_pipeline(settings, files)
    described = describe_layout(prepared.layout)
    return {
        "pipeline": pipeline.name,
        "definition": described.definition,
        "definition_hash": described.definition_hash,
        "layout": described.layout,
        "file_text": described.file_text,
    }


def main() -> int:
    """Describe the version of a file; the exit code is 0 unless it has a mistake."""
    return run_program("description", _describe)


def _describe() -> int:
    description = describe_version(Path(sys.argv[1]))
    # What the file itself has printed comes before it.
    sys.stdout.write("\n" + json.dumps(description) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
