"""Look at a topic: read it, note its records, propose a pipeline, and report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tallyweir.schemas.contract import CONTRACTS_FOLDER, Contract, load_contract
from tallyweir.services.look.id_candidates import KEY
from tallyweir.services.look.identity_store import IdentityStore
from tallyweir.services.look.look_report import LookReport
from tallyweir.services.look.looked_record import ReadExtent
from tallyweir.services.look.pipeline_proposal import propose
from tallyweir.services.look.topic_profile import TopicProfile
from tallyweir.services.look.topic_reader import TopicReader
from tallyweir.sinks.protocol.errors import ConfigurationError


def look_at(
    bootstrap: str,
    topic: str,
    *,
    records: int | None,
    schemas: Sequence[str] = (),
    is_redacted: bool = False,
) -> LookReport:
    """Look at a topic.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        topic: The topic.
        records: How many records to read about; None for all.
        schemas: Further contracts, beside those shipped.
        is_redacted: Whether the report shows no values.

    Raises:
        ConfigurationError: ``TOPIC_MISSING``.
        RetryableError: ``KAFKA_UNREACHABLE``.
        ContractError: A contract that was named cannot be used.
    """
    contracts = known_contracts(schemas)
    reader = TopicReader(bootstrap, topic)
    facts = reader.find_facts()
    extent = ReadExtent(is_whole=False)
    now_ms = time.time_ns() // 1_000_000
    with IdentityStore() as store:
        profile = TopicProfile(store, contracts, now_ms * 1_000)
        for batch in reader.read(facts, records, extent):
            profile.add(batch)
        key = profile.ids.numbers.get(KEY)
        return LookReport(
            facts=facts,
            extent=extent,
            profile=profile,
            proposal=propose(profile, topic),
            key_counts=None if key is None else store.count(key),
            is_redacted=is_redacted,
            now_ms=now_ms,
        )


def known_contracts(schemas: Sequence[str]) -> Mapping[int, Contract]:
    """Load the shipped contracts and those that were named, by schema id.

    Raises:
        ContractError: One that was named cannot be used.
    """
    shipped = sorted(CONTRACTS_FOLDER.glob("*.avsc"))
    loaded = [load_contract(path.stem) for path in shipped]
    loaded += [load_contract(reference) for reference in schemas]
    return {one.schema_id: one for one in loaded}


def require_new(path: Path, *, force: bool) -> None:
    """Check that a file may be written.

    Raises:
        ConfigurationError: ``FILE_EXISTS``.
    """
    if path.exists() and not force:
        raise ConfigurationError(
            "FILE_EXISTS",
            saw=f"{path} is there already.",
            why="It may hold your changes.",
            fix="Choose another --output, or add --force to replace it.",
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Explain why a file cannot be written.

    Raises:
        ConfigurationError: ``FILE_UNWRITABLE``.
    """
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            "FILE_UNWRITABLE",
            saw=f"{path} cannot be written: {error.strerror}.",
            why="The pipeline goes into this file.",
            fix="Choose another --output.",
        ) from error
