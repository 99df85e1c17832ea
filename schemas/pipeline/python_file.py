"""Loads pipelines from Python files, which define ``pipeline = Pipeline(...)``.

The sources of the file, and of modules next to it that it imports, belong to the
pipeline's definition, so that the ledger knows the code of each batch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.pipeline.checks.problems import (
    Gathered,
    PipelineError,
    gathering,
)
from tallyweir.schemas.pipeline.columns import contract_problems, find_column_problems
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.functions.user_code import (
    describe_failure,
    hash_sources,
)
from tallyweir.schemas.pipeline.redaction import find_redaction_problems
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError

_OWN_PACKAGE = __name__.partition(".")[0]

#: The modules that the file loaded last imported from its own folder, and the folder.
#: The next file must find its own, and not those of another folder.
_brought_modules: list[str] = []
_brought_folders: list[str] = []


def load_python_pipeline(path: Path) -> tuple[Pipeline, tuple[ModuleType, ...]]:
    """Run a pipeline's Python file, and check its pipeline against its contract.

    Returns:
        The pipeline, and the modules with its code: the file's, and those that it has
        imported from its own folder.

    Raises:
        ConfigurationError: ``PIPELINE_CODE_FAILED``: the file raised an error, or a
            value has a type that cannot be checked;
            ``PIPELINE_NOT_DEFINED``: it has no ``pipeline``.
        PipelineError: A part of the pipeline is wrong; the error names all of them.
        ContractError: A contract of the pipeline is wrong.
    """
    _forget_former_file()
    known = set(sys.modules)
    gathered = Gathered(path.absolute().parent)
    try:
        with gathering(gathered.add):
            module, pipeline = _define(path, gathered)
            _check_contracts(pipeline, path, gathered)
    finally:
        beside = _modules_beside(path.absolute(), known)
        _brought_modules.extend(one.__name__ for one in beside)
    gathered.raise_if_any()
    modules = (module, *beside)
    if pipeline.has_code and not pipeline.code_version:
        sources = {Path(one.__file__) for one in modules if one.__file__}
        pipeline = replace(pipeline, code_version=hash_sources(sources))
    return pipeline, modules


def _forget_former_file() -> None:
    for name in _brought_modules:
        sys.modules.pop(name, None)
    for folder in _brought_folders:
        if folder in sys.path:
            sys.path.remove(folder)
    _brought_modules.clear()
    _brought_folders.clear()


def _define(path: Path, gathered: Gathered) -> tuple[ModuleType, Pipeline]:
    """Run the file; raise problems of parts before errors that follow from them."""
    try:
        module = _run(path.absolute())
    except PipelineError as error:
        gathered.problems.extend(error.problems)
        gathered.places.extend(error.places)
        gathered.raise_if_any()
        raise
    except ConfigurationError:
        gathered.raise_if_any()
        raise
    pipeline = getattr(module, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        gathered.raise_if_any()
        raise ConfigurationError(
            "PIPELINE_NOT_DEFINED",
            saw=f"{path} has no pipeline = Pipeline(...); pipeline is "
            f"{type(pipeline).__name__}.",
            why="A Python pipeline file defines its pipeline under that name.",
            fix="Assign the Pipeline to a module-level variable called pipeline.",
        )
    return module, pipeline


def _check_contracts(pipeline: Pipeline, path: Path, gathered: Gathered) -> None:
    """Check the columns too, as far as they are known in spite of wrong parts."""
    is_right = not gathered.problems
    if pipeline.source.wanted_subject is not None:
        # Its columns are known once it is pinned.
        return
    try:
        source = pipeline.source
        contracts = load_event_contracts(
            source.schemas, path.parent, key=source.key_reference
        )
        columns = find_column_problems(pipeline, contracts.fields)
        redaction = find_redaction_problems(pipeline, contracts)
        gathered.add((*columns, *redaction), "Pipeline")
    except ContractError as error:
        if is_right:
            raise
        found = contract_problems(error)
        key = "fields" if pipeline.source.fields else "schema"
        gathered.add((one.under("source", key) for one in found), "Pipeline")
    except Exception as error:
        # A wrong part, or a value of a right one, may have any type.
        if not is_right:
            return
        if isinstance(error, TallyweirError):
            raise
        raise _code_failed(path, error) from error


def _run(path: Path) -> ModuleType:
    """Run the file as a module with a unique name."""
    name = f"tallyweir_pipeline_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "asked for files that end with .py only"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent)
    if folder not in sys.path:
        # Append it, so that it does not hide installed packages.
        sys.path.append(folder)
        _brought_folders.append(folder)
    try:
        spec.loader.exec_module(module)
    except TallyweirError:
        raise
    except (Exception, SystemExit) as error:
        raise _code_failed(path, error) from error
    return module


def _code_failed(path: Path, error: BaseException) -> ConfigurationError:
    return ConfigurationError(
        "PIPELINE_CODE_FAILED",
        saw=f"{path.name} failed: {describe_failure(error, quote_message=True)}.",
        why="Tallyweir runs the file to get the pipeline.",
        fix="Correct the file; python FILE runs it alone.",
    )


def _modules_beside(path: Path, known: set[str]) -> list[ModuleType]:
    """Return the modules that the file has imported from its own folder."""
    found = []
    for name in sorted(set(sys.modules) - known):
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        if file is None or Path(file) == path or name.split(".")[0] == _OWN_PACKAGE:
            continue
        inside = Path(file).absolute()
        if inside.is_relative_to(path.parent) and "site-packages" not in inside.parts:
            found.append(module)
    return found
