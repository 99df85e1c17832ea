"""The contract by which a producer writes a topic's events.

Of a contract in a schema registry, it is the version that the pipeline has pinned, with
the id under which every consumer finds it. Nothing here registers a schema.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tallyweir.schemas.contract import (
    Contract,
    DeclaredFields,
    is_of_registry,
    load_contract,
)
from tallyweir.schemas.event_contracts import load_event_contract
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.json.framed_json import FramedJson
from tallyweir.schemas.formats.known_formats import split_envelope, with_framing
from tallyweir.schemas.registered_contract import Pin, require_kind
from tallyweir.services.process.endpoints import find_home_dsn
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.services.produce.source_section import SourceSection

_Pinned = tuple[Pin, tuple[RegisteredSchema, ...]]
"""A version of a subject, and schemas of the registry, its own among them."""


def load_written_contract(
    section: SourceSection, *, schema: str, topic: str, path: Path
) -> Contract:
    """Load the contract of a topic's new events.

    If a registry has it, it is the version that the pipeline pinned, as the home
    database keeps it. Before the pipeline's first start, and where no home is named and
    none runs here, it is the newest version of the subject. Documents whose fields the
    pipeline names have the id of the newest version of ``TOPIC-value``.

    Args:
        section: The source of the pipeline.
        schema: One of its contracts.
        topic: One of its topics.
        path: The pipeline file.

    Raises:
        ContractError: As ``load_event_contract`` does, or the subject is of another
            kind.
        ConfigurationError: As ``RegistryClient`` does: ``SUBJECT_MISSING``,
            ``REGISTRY_REFUSED``, or a setting.
        RetryableError: The registry or the home does not answer.
    """
    subject = section.subject or f"{topic}-value"
    declared = DeclaredFields.of(schema)
    envelope, name = split_envelope(schema)
    named = name if declared is None else declared.schema
    if is_of_registry(named):
        pin, kept = _find_pinned(section.pipeline, subject) or _ask_newest(subject)
        _, mark, part = named.partition("#")
        pin = replace(pin, part=part if mark else None)
        reference = with_framing(pin.reference, Framing.CONFLUENT, envelope)
        if declared is not None:
            reference = replace(declared, schema=reference).reference
        return load_event_contract(reference, path, kept).contract
    contract = load_contract(schema, path)
    if declared is None or not declared.framed:
        return contract
    pin, (newest,) = _ask_newest(subject)
    require_kind(newest, FramedJson.registry_kind)
    return replace(contract, schema_id=pin.schema_id)


def _find_pinned(pipeline: str | None, subject: str) -> _Pinned | None:
    """Return what the home database has pinned, and the schemas that it keeps."""
    # Few pipelines have a registry, and others need no database to send events.
    from tallyweir.sinks.postgres.ledger.registered_schemas import find_registered  # noqa: PLC0415
    from tallyweir.sinks.postgres.versions.pipeline_versions import find_contracts  # noqa: PLC0415

    if pipeline is None:
        return None
    try:
        home_dsn = find_home_dsn()
    except ConfigurationError as error:
        if error.code != "SERVER_NOT_RUNNING":
            raise
        return None
    pin = Pin.find(find_contracts(home_dsn, pipeline), subject)
    return None if pin is None else (pin, find_registered(home_dsn))


def _ask_newest(subject: str) -> _Pinned:
    from tallyweir.sinks.registry_client import open_client  # noqa: PLC0415 - takes time

    with open_client() as registry:
        version, newest = registry.latest(subject)
    pin = Pin(subject=subject, version=version, schema_id=newest.schema_id)
    return pin, (newest,)
