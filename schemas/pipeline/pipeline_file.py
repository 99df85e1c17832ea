"""Reads pipelines from files, and checks them against the contracts that they name.

The whole file is checked before anything starts. The error has every problem that can
be known, in order of lines. A file that ends with ``.py`` is Python, and
``python_file`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import add
from pathlib import Path as FilePath
from types import ModuleType
from typing import ParamSpec, TypeVar

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import (
    EventContracts,
    load_event_contract,
    load_key_contracts,
)
from tallyweir.schemas.pipeline.checks.problems import Path, StandIn
from tallyweir.schemas.pipeline.columns import (
    contract_problems,
    find_column_problems,
    find_lookup_problems,
)
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.document.yaml_tree import Report, read_tree
from tallyweir.schemas.pipeline.events.source import Source
from tallyweir.schemas.pipeline.pipeline_keys import PipelineKeys
from tallyweir.schemas.pipeline.python_file import load_python_pipeline
from tallyweir.schemas.pipeline.redaction import find_redaction_problems

P = ParamSpec("P")
T = TypeVar("T")


def load_pipeline(path: FilePath) -> Pipeline:
    """Read a pipeline file and check all of it, also against its contract.

    Without ``deduplicate``, its defaults apply: IDs are remembered for 7 days. Only
    ``deduplicate: off`` or ``guarantee: at_least_once`` turns it off.

    Raises:
        PipelineError: The file, or a contract that it names, has problems; the error
            has the line of each.
        ConfigurationError, ContractError: As ``load_python_pipeline`` does.
    """
    return load_pipeline_and_modules(path)[0]


def load_pipeline_and_modules(
    path: FilePath,
) -> tuple[Pipeline, tuple[ModuleType, ...]]:
    """Read a pipeline file, as ``load_pipeline`` does; return its modules too.

    They are those of ``load_python_pipeline``; a YAML file has none.
    """
    if path.suffix == ".py":
        return load_python_pipeline(path)
    return _load_yaml(path), ()


def _load_yaml(path: FilePath) -> Pipeline:
    tree, report = read_tree(path)
    keys = PipelineKeys.model_validate(tree, context=report)
    pipeline, in_file = keys.build_placed(report)
    contracts = _read_event_contracts(pipeline.source, path, report)
    if contracts is not None:
        columns = find_column_problems(pipeline, contracts.fields)
        redaction = find_redaction_problems(pipeline, contracts)
        report.add_found(chain(columns, redaction), in_file)
    for index, enrichment in enumerate(pipeline.enrich):
        schema, at = enrichment.schema, ("enrich", index)
        if enrichment.table or isinstance(schema, StandIn):
            continue
        if enrichment.wanted_subject or not (schema or enrichment.fields):
            continue
        key = "fields" if enrichment.fields else "schema"
        looked_up = _attempt(
            report, (*at, key), load_contract, enrichment.reference, path.parent
        )
        if looked_up is not None:
            problems = find_lookup_problems(enrichment, looked_up.fields)
            report.add_found(problems, partial(add, at))
    report.raise_if_any()
    return pipeline


def _read_event_contracts(
    source: Source, path: FilePath, report: Report
) -> EventContracts | None:
    """Read the contracts one by one, so that each mistake has its own line.

    A registry's contract has no columns before it is pinned (``check_columns``).
    """
    if not source.schemas or isinstance(source.schema, StandIn):
        return None
    if source.is_of_registry:
        return None
    key = source.key_reference
    of_key = None
    if key:
        in_key: Path = ("source", "key")
        of_key = _attempt(report, in_key, load_key_contracts, key, path.parent)
    at: Path = ("source", "fields" if source.fields else "schema")
    found = [
        _attempt(report, (*at, index), load_event_contract, reference, path.parent)
        for index, reference in enumerate(source.schemas)
        if reference not in source.schemas[:index]
    ]
    usable = tuple(one for one in found if one is not None)
    if len(usable) < len(found) or (key is not None and of_key is None):
        return None
    return _attempt(report, at, EventContracts, usable, of_key)


def _attempt(
    report: Report, at: Path, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """Call ``make``; return None, with the problem reported, if a contract is wrong."""
    try:
        return make(*args, **kwargs)
    except ContractError as exc:
        report.add_found(contract_problems(exc), partial(add, at))
        return None
