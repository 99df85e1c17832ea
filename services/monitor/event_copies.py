"""Every copy of an event with its record, for tokens that may see records.

The home database keeps the records that became no result. All other records come from
Kafka, while it keeps them and while the topic is still the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tallyweir.services.kafka.topic_positions import read_positions
from tallyweir.services.operate.redrive.letter_report import content_json
from tallyweir.services.operate.redrive.source_records import ReadRecord, SourceRecords
from tallyweir.sinks.postgres.audit import AuditedSource, Explanation
from tallyweir.sinks.postgres.audit.why.explanation import Sighting
from tallyweir.sinks.postgres.steering import RecordPosition
from tallyweir.sinks.protocol.errors import TallyweirError

Records = Mapping[RecordPosition, ReadRecord]


def sightings_of(found: Explanation) -> dict[RecordPosition, list[Sighting]]:
    """Return the sightings of each copy, in the order of the explanation."""
    copies: dict[RecordPosition, list[Sighting]] = {}
    for one in found.sightings:
        place = RecordPosition(
            topic=one.position.topic,
            partition=one.position.partition,
            offset=one.offset,
        )
        copies.setdefault(place, []).append(one)
    return copies


def read_from_kafka(
    bootstrap: str,
    places: Sequence[RecordPosition],
    topic_ids: Mapping[str, str],
) -> Records:
    """Read those records that Kafka still has; none if Kafka does not answer.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        places: Positions of the records.
        topic_ids: IDs of the topics that were read: a topic that was deleted and
            created again has another ID.
    """
    broker, _ = read_positions(
        bootstrap, {one.topic for one in places} & set(topic_ids)
    )
    same = {
        place.topic
        for place, at in (broker or {}).items()
        if at.topic_id == topic_ids[place.topic]
    }
    try:
        with closing(SourceRecords(bootstrap)) as records:
            return records.read_whole(one for one in places if one.topic in same)
    except TallyweirError:
        return {}


def copies_json(
    copies: Mapping[RecordPosition, Sequence[Sighting]],
    records: Records,
    source: AuditedSource,
    beside: Path | None,
) -> list[dict[str, Any]]:
    """Return each copy with its record.

    Args:
        copies: The copies as ``sightings_of`` returns them.
        records: Their records in Kafka.
        source: Source of the pipeline.
        beside: The folder of contracts that are files.
    """
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "offset": place.offset,
            "fates": list(dict.fromkeys(one.fate.value for one in sightings)),
            "contracts": list(source.schemas),
            **_content(sightings, records.get(place), source, beside),
        }
        for place, sightings in copies.items()
    ]


def _content(
    sightings: Sequence[Sighting],
    record: ReadRecord | None,
    source: AuditedSource,
    beside: Path | None,
) -> dict[str, Any]:
    kept = next((one for one in sightings if one.payload is not None), None)
    if kept is None and record is None:
        return {"is_there": False}
    held = record if kept is None else kept
    assert held is not None
    return {
        "is_there": True,
        **content_json(
            key=held.key,
            payload=held.payload,
            headers=None if record is None else record.headers,
            schemas=source.schemas,
            beside=beside,
        ),
    }
