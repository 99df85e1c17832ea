"""What a pipeline knows of its schema registry: contracts, and ids without a use.

The driver asks the registry once for each id and has the home keep the answer. So
tasks, later drivers and replays read an id alike, whatever the registry says then.
Tasks never ask: a task that meets an id that is unknown to it stages nothing, and the
driver asks and has the batch staged again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tallyweir.schemas.event_contracts import (
    EventContracts,
    KeyContracts,
    load_event_contracts,
    load_key_contracts,
)
from tallyweir.schemas.pipeline import Pipeline, check_columns
from tallyweir.schemas.pipeline.checks.problems import raise_if_any
from tallyweir.schemas.pipeline.redaction import find_redaction_problems
from tallyweir.schemas.registered_contract import Pin
from tallyweir.sinks.postgres.ledger.registered_schemas import (
    find_registered,
    keep_registered,
)
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.versions.pipeline_versions import find_contracts
from tallyweir.sinks.protocol.errors import (
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.sinks.registry_client import RegistryClient

#: How long an id that the registry does not know is not asked for again.
ASK_AGAIN_S = 5.0
_ABSENT = "the registry says that there is no such schema"


class KnownSchemas:
    """The schemas of one pipeline's registry, for the life of a process.

    Only one thread may use it at a time.

    Args:
        reference: The contract of the pinned version, as the pipeline names it.
        home_dsn: The home database, which keeps the schemas.
        beside: The pipeline file.
        open_client: Makes the client that some questions are asked by.
        found: Schemas that a home without migrations does not keep.
        key: How keys are read; None if they are bytes.
    """

    def __init__(  # noqa: PLR0913 (keyword-only; each is a part of it)
        self,
        reference: str,
        home_dsn: str,
        beside: Path,
        open_client: Callable[[], RegistryClient],
        *,
        found: Sequence[RegisteredSchema] = (),
        key: KeyContracts | None = None,
    ) -> None:
        self._reference = reference
        self._key = key
        self._home_dsn = home_dsn
        self._beside = beside
        self._open_client = open_client
        self._found = tuple(found)
        self._is_replayed = False
        #: Ids that the registry does not know, and when it said so.
        self._absent: dict[int, float] = {}
        #: Ids that the registry has not answered for.
        self._awaited: frozenset[int] = frozenset()
        self._log = structlog.get_logger()
        self._recall()

    def _recall(self) -> None:
        registered = find_registered(self._home_dsn)
        kept = {one.schema_id for one in registered}
        registered += tuple(one for one in self._found if one.schema_id not in kept)
        (self._contract,) = load_event_contracts(
            [self._reference], self._beside, registered
        ).each

    @property
    def contracts(self) -> EventContracts:
        """The contract, with all writers and all ids without a use that are known."""
        kept, absent = self._contract, dict.fromkeys(self._absent, _ABSENT)
        writers = {i: one for i, one in kept.writers.items() if i not in absent}
        unreadable = {**absent, **kept.unreadable}
        contract = replace(kept, writers=writers, unreadable=unreadable)
        return EventContracts((contract,), self._key)

    def replay(self, absent: Collection[int]) -> None:
        """Know only what the home keeps, but for some ids, and ask no registry again.

        Args:
            absent: The ids that the registry did not know when a batch was staged.
        """
        self._is_replayed = True
        self._absent = dict.fromkeys(absent, math.inf)

    def forget_absent(self) -> None:
        """Let ids be asked for again, if that was some seconds ago.

        A batch calls this before it is staged, and not in between: it would never be
        staged to the end if it took longer.
        """
        now = time.monotonic()
        self._absent = {
            schema_id: at
            for schema_id, at in self._absent.items()
            if now - at < ASK_AGAIN_S
        }

    def resolve(self, wanted: Collection[int]) -> None:
        """Ask the registry for ids, and have the home keep the schemas.

        Raises:
            RetryableError: ``REGISTRY_UNAVAILABLE``.
            ConfigurationError: ``REGISTRY_REFUSED``, or as ``RegistrySettings``.

        Crash:
            Each schema is kept as soon as it is known.
        """
        # Another pipeline's driver may have had the home keep some.
        self._recall()
        known = {*self._contract.writers, *self._contract.unreadable}
        self._awaited = frozenset(wanted) - known
        if self._is_replayed:
            self._absent.update(dict.fromkeys(self._awaited, math.inf))
            self._awaited = frozenset()
        if self._awaited:
            with self._open_client() as registry:
                for schema_id in sorted(self._awaited):
                    found = registry.schema(schema_id)
                    if found is None:
                        self._absent[schema_id] = time.monotonic()
                    else:
                        kept = keep_registered(self._home_dsn, found)
                        self._tell_if_other(kept, found)
        self._awaited = frozenset()
        self._recall()

    def resolve_awaited(self) -> None:
        """Ask again for what the registry has not answered.

        Raises:
            TallyweirError: As ``resolve`` does.
        """
        if self._awaited:
            self.resolve(self._awaited)

    def compare(self) -> None:
        """Say if the registry hands out other schemas than those that are kept.

        What is kept is used all the same. A registry that does not answer is not asked
        any further.
        """
        kept = {one.schema_id: one for one in find_registered(self._home_dsn)}
        try:
            with self._open_client() as registry:
                for schema_id in self._contract.writers:
                    found = registry.schema(schema_id)
                    if found is not None:
                        self._tell_if_other(kept[schema_id], found)
        except TallyweirError as error:
            self._log.warning(
                "registry not compared", error_code=error.code, saw=error.saw
            )

    def _tell_if_other(self, kept: RegisteredSchema, found: RegisteredSchema) -> None:
        if _content(kept) != _content(found):
            self._log.error(
                "registry has another schema",
                error_code="REGISTRY_SCHEMA_CHANGED",
                schema_id=kept.schema_id,
                saw=f"The registry hands out another schema under the id "
                f"{kept.schema_id} than it did before.",
                fix="The one that is kept is used. If the registry was wiped, give "
                "back its former content, or send new events to a new topic.",
            )


def _content(schema: RegisteredSchema) -> tuple[object, ...]:
    """Return what a schema says, however a registry has written its JSON."""
    return schema.kind, *map(_as_json, (schema.text, *dict(schema.references).values()))


def _as_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def open_client() -> RegistryClient:
    """Return a client, as ``registry_client.open_client`` does."""
    # Most pipelines have no registry, and its client takes time to import.
    from tallyweir.sinks import registry_client  # noqa: PLC0415

    return registry_client.open_client()


def reads_registry(pipeline: Pipeline) -> bool:
    """Tell whether a registry has a contract of a pipeline that is not pinned yet."""
    looked_up = any(one.wanted_subject for one in pipeline.enrich)
    return looked_up or pipeline.source.wanted_subject is not None


def without_registry(pipeline: Pipeline, schema: str) -> Pipeline:
    """Return a pipeline that reads its events by a file instead of a registry."""
    source = replace(pipeline.source, schema=schema, subject=None)
    return replace(pipeline, source=source)


def pin_contracts(
    pipeline: Pipeline, path: Path, home_dsn: str, *, newest: bool = False
) -> tuple[Pipeline, KnownSchemas | None]:
    """Pin the versions that a pipeline reads its events and lookups by.

    They are those of the version in force. If there is none, or it reads another
    subject, it is the newest version of the subject.

    Args:
        pipeline: A pipeline some of whose contracts are in a registry.
        path: Its file.
        home_dsn: The home database.
        newest: Whether to take the newest versions in any case, and to migrate nothing.

    Returns:
        The pipeline with the pinned versions as contracts, and the schemas of its
        source; None if that is not in the registry.

    Raises:
        ConfigurationError: ``SUBJECT_MISSING``, ``REGISTRY_REFUSED``, or as
            ``open_client`` does.
        RetryableError: ``REGISTRY_UNAVAILABLE``.
        ContractError: The pinned schema cannot be used.
        PipelineError: The pipeline names columns that it does not have.
    """
    references = find_contracts(home_dsn, pipeline.name)
    if not newest:
        migrate(home_dsn)
    found: list[RegisteredSchema] = []

    def pinned(subject: str, part: str | None) -> Pin:
        return replace(version_of(subject), part=part)

    def version_of(subject: str) -> Pin:
        in_force = Pin.find(references, subject)
        if in_force is not None and not newest:
            return in_force
        try:
            pin, schema = _newest(subject)
        except RetryableError:
            if in_force is None:
                raise
            return in_force
        found.append(keep_registered(home_dsn, schema))
        return pin

    source, known = pipeline.source, None
    enrich = tuple(
        replace(one, schema=pinned(one.wanted_subject, one.wanted_part).reference)
        if one.wanted_subject
        else one
        for one in pipeline.enrich
    )
    pipeline = replace(pipeline, enrich=enrich)
    if source.wanted_subject is not None:
        pin = pinned(source.wanted_subject, source.wanted_part)
        source = replace(source, schema=pin.reference, subject=None)
        pipeline = replace(pipeline, source=source)
        reference = source.key_reference
        key = None if reference is None else load_key_contracts(reference, path)
        known = KnownSchemas(
            source.schemas[0], home_dsn, path, open_client, found=found, key=key
        )
        check_columns(pipeline, known.contracts.fields)
        raise_if_any("Pipeline", find_redaction_problems(pipeline, known.contracts))
    return pipeline, known


def _newest(subject: str) -> tuple[Pin, RegisteredSchema]:
    with open_client() as registry:
        version, schema = registry.latest(subject)
    return Pin(subject=subject, version=version, schema_id=schema.schema_id), schema
