"""Loads a pipeline so that Spark's workers get the code of its file."""

from __future__ import annotations

from pathlib import Path as FilePath

from tallyweir.schemas.pipeline import Pipeline
from tallyweir.schemas.pipeline.pipeline_file import load_pipeline_and_modules


def load_with_code(path: FilePath) -> Pipeline:
    """Load a pipeline, and have Spark pickle the modules of its file by value.

    So the workers need neither the file nor the modules beside it.

    Raises:
        TallyweirError, ContractError: As ``load_pipeline`` does.
    """
    pipeline, modules = load_pipeline_and_modules(path)
    if modules:
        # Spark pickles with its own copy of cloudpickle, which takes a moment to load.
        from pyspark import cloudpickle  # noqa: PLC0415

        for module in modules:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return pipeline
