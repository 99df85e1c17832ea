"""Puts an explanation into sentences, for the operator on call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from tallyweir.sinks.postgres.audit.checks.branches import DecidedBranch
from tallyweir.sinks.postgres.audit.fate import Fate
from tallyweir.sinks.postgres.audit.why.dead_letters import Redrive
from tallyweir.sinks.postgres.audit.why.explanation import (
    AddedToWindows,
    CatalogHit,
    Explanation,
    PublishedBatch,
    Sighting,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.staging.staging_tables import SKIPPED
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition

#: How many bytes of a payload are shown in hex; the table has the rest.
_HEX_BYTES_MAX = 200

#: Decodes a payload for people; None if it cannot.
PayloadReader = Callable[[bytes], str | None]


def narrate(explanation: Explanation, read_payload: PayloadReader) -> Iterator[str]:
    """Yield one sentence per copy and trace, oldest batch first.

    If the ID was erased, only the acts that erased it are told, unless a row has come
    back.
    """
    for act in explanation.erased_by:
        yield (
            f"Erased in act {act.epoch} at {_time(act.done_at)} by {act.done_by}: "
            f"{act.reason}"
        )
    if explanation.erased_by and not explanation.sightings:
        return
    copies: dict[tuple[TopicPartition, int], int] = {}
    readings: dict[tuple[TopicPartition, int], set[PublishedBatch | None]] = {}
    for sighting, rows in Counter(explanation.sightings).items():
        place = (sighting.position, sighting.offset)
        copy = copies.setdefault(place, len(copies) + 1)
        former = readings.setdefault(place, set())
        is_again = bool(former - {sighting.batch})
        former.add(sighting.batch)
        source = explanation.inputs.get(sighting.position)
        told = _tell_sighting(
            sighting, _which(copy, is_again=is_again), source, read_payload
        )
        yield told if rows == 1 else f"{told} Its row appears {rows} times."
    if explanation.guarantee is Guarantee.AT_LEAST_ONCE:
        yield (
            "The pipeline writes at_least_once: rows that a batch wrote before "
            "it was run again or given up stay, and no IDs are remembered."
        )
    for number, hit in enumerate(explanation.catalog_hits):
        yield _tell_hit(hit, is_first=number == 0)
    for one in explanation.left_out:
        yield (
            f"{one.output} has no row of the copy at {one.position} offset "
            f"{one.offset}: it takes only events that meet its condition: "
            f"{one.condition}."
        )
    yield from _tell_awaited(explanation)
    if explanation.id_has_source and any(
        s.fate is not Fate.COMMITTED for s in explanation.sightings
    ):
        yield (
            "Late, expired, filtered and duplicate events and dead letters are found "
            "by the ID alone, so they may belong to another source."
        )
    fates = {sighting.fate for sighting in explanation.sightings}
    yield from map(_tell_windows, explanation.in_windows_only)
    if Fate.DUPLICATE in fates and not fates & {Fate.COMMITTED, Fate.REPLACED}:
        yield (
            "The first copy is in no output table that keeps IDs; it went into "
            "windows, or its row was deleted since, or its message was sent."
        )


def narrate_unknown(
    explanation: Explanation, unread: dict[TopicPartition, int] | None
) -> Iterator[str]:
    """Yield what was searched, and what the search cannot tell.

    Args:
        explanation: An explanation that found nothing.
        unread: Offsets that the pipeline has yet to read, by partition; None if the
            broker did not respond.
    """
    yield (
        f"Pipeline {explanation.pipeline} has no trace of ID "
        f"{explanation.event_id!r}. Searched: {'; '.join(explanation.searched)}."
    )
    for branch in explanation.awaited:
        yield (
            f"Batch {branch.sequence} is decided, {_not_yet(branch)}; the event may be "
            "among its rows."
        )
    if explanation.id_has_source:
        yield (
            "The catalog stores the IDs of this pipeline together with their source; "
            "check that --source is the event's."
        )
    if explanation.forgotten_before_s is not None:
        limit = datetime.fromtimestamp(explanation.forgotten_before_s, tz=UTC)
        yield f"IDs of events from before {_time(limit)} may have been forgotten."
    if explanation.letters_without_id:
        yield (
            f"{explanation.letters_without_id} dead letters have no readable ID; "
            "this event may be among them."
        )
    if unread is None:
        yield (
            "Kafka did not answer, so it is unknown whether records are still unread; "
            "the event may be among them."
        )
    elif waiting := {place: n for place, n in unread.items() if n > 0}:
        places = ", ".join(f"{n} on {place}" for place, n in sorted(waiting.items()))
        yield f"The pipeline has yet to read {places}; the event may be among them."
    elif unread:
        yield "The pipeline has read every record that Kafka returns."
    else:
        yield "The pipeline reads no topic: it has only had batch runs."


def _which(copy: int, *, is_again: bool) -> str:
    name = "A copy" if copy == 1 else f"Copy {copy}"
    return f"{name}, read again," if is_again else name


def _tell_sighting(
    sighting: Sighting, which: str, source: str | None, read_payload: PayloadReader
) -> str:
    where = f"{sighting.position} offset {sighting.offset}"
    if source is not None:
        where += f" ({source})"
    batch = _batch(sighting.batch)
    match sighting.fate:
        case Fate.COMMITTED:
            said = (
                f"{which} at {where} was committed to {sighting.output}"
                f"{_place(sighting)} in {batch}."
            )
        case Fate.REPLACED:
            said = (
                f"{which} at {where} was committed to {sighting.output} in {batch}; "
                f"its row was replaced by run {sighting.run} in "
                f"{_batch(sighting.replaced_in)}."
            )
        case Fate.DUPLICATE:
            said = f"{which} at {where} was dropped as a duplicate in {batch}."
        case Fate.DEAD:
            # A reader who may not see what records hold gets the reason only.
            detail = (sighting.detail or "").removesuffix(".")
            seen = f", {detail}" if detail else ""
            said = (
                f"{which} at {where} became a dead letter in {batch}: "
                f"{sighting.reason}{seen}."
                + "".join(map(_tell_redrive, sighting.redrives))
            )
        case Fate.LATE:
            said = (
                f"{which} at {where} came too late for {sighting.output} in {batch}: "
                f"its event time is {_time(sighting.event_time)}."
            )
        case Fate.EXPIRED:
            said = (
                f"{which} at {where} expired in {batch}: its event time "
                f"{_time(sighting.event_time)} is beyond the horizon, so whether it "
                "is a repeat cannot be known."
            )
        case Fate.FILTERED if str(sighting.detail).startswith(SKIPPED):
            what = str(sighting.detail).removeprefix(SKIPPED)
            said = (
                f"{which} at {where} was skipped in {batch}: it is no event but a "
                f"{what}."
            )
        case Fate.FILTERED:
            said = (
                f"{which} at {where} was filtered in {batch} by: {sighting.detail}, "
                "which is not true of it."
            )
    return said + _tell_content(sighting, read_payload)


def _tell_redrive(redrive: Redrive) -> str:
    asked = f"by {redrive.asked_by}: {redrive.reason}"
    if redrive.sent_at is None:
        return (
            f" It was about to be sent again at {_time(redrive.asked_at)} {asked}; "
            "whether it was sent is unknown."
        )
    assert redrive.new_partition is not None
    place = TopicPartition(redrive.topic, redrive.new_partition)
    return (
        f" It was sent again at {_time(redrive.sent_at)} {asked}; the copy is at "
        f"{place} offset {redrive.new_offset}."
    )


def _tell_content(sighting: Sighting, read_payload: PayloadReader) -> str:
    told = ""
    if sighting.kafka_timestamp is not None:
        told += f"\n  Kafka's timestamp: {_time(sighting.kafka_timestamp)}"
    if sighting.key is not None:
        told += f"\n  key (hex): {_hex(sighting.key)}"
    if sighting.payload is not None:
        told += f"\n  payload (hex): {_hex(sighting.payload)}"
        readable = read_payload(sighting.payload)
        if readable is not None:
            told += f"\n  payload: {readable}"
    return told


def _tell_hit(hit: CatalogHit, *, is_first: bool) -> str:
    bucket = datetime.fromtimestamp(hit.bucket, tz=UTC)
    if not is_first:
        return (
            f"It is remembered again from {_batch(hit.batch)}; further copies are "
            "compared with the payload of that one."
        )
    return (
        f"The ID is remembered as seen (bucket of {_time(bucket)}), first "
        f"in {_batch(hit.batch)}; further copies are dropped."
    )


def _tell_windows(added: AddedToWindows) -> str:
    """Say which windows an event may be in, if no table has it by its ID."""
    tables = ", ".join(added.windows)
    if added.span is None:
        return (
            f"No table has a row of that position. {_batch(added.batch)} has read it "
            f"and added its events to the windows of {tables}; so it is in some of "
            "them, unless no event is there: the marker of a transaction, say."
        )
    begin, end = (datetime.fromtimestamp(at, tz=UTC) for at in added.span)
    return (
        f"No table has a row with its ID. Batch {added.batch.sequence} added its "
        f"events to the windows of {tables}; this one's time is from "
        f"{_time(begin)} to {_time(end)}, so it is in rows of windows of that time."
    )


def _tell_awaited(explanation: Explanation) -> Iterator[str]:
    """Say which rows of the event's batches cannot be seen yet."""
    traces: list[Sighting | CatalogHit] = [
        *explanation.sightings,
        *explanation.catalog_hits,
    ]
    batches = {trace.batch.sequence for trace in traces if trace.batch is not None}
    committed = {
        sighting.batch.sequence
        for sighting in explanation.sightings
        if sighting.fate is Fate.COMMITTED and sighting.batch is not None
    }
    for branch in explanation.awaited:
        if branch.sequence not in batches:
            continue
        if branch.sequence in committed:
            yield (
                f"Batch {branch.sequence} is decided, {_not_yet(branch)}; the "
                "resolver will commit the event's rows there."
            )
        else:
            yield (
                f"The event is decided in batch {branch.sequence}, {_not_yet(branch)}; "
                "the resolver will commit it."
            )


def _not_yet(branch: DecidedBranch) -> str:
    return f"not yet committed in {branch.database} (branch {branch.branch})"


def _place(sighting: Sighting) -> str:
    """Name the database, unless it is the home and no branch committed there."""
    if sighting.database == HOME and not sighting.branches:
        return ""
    which = "branch" if len(sighting.branches) == 1 else "branches"
    branches = (
        f" ({which} {', '.join(sighting.branches)} committed)"
        if sighting.branches
        else ""
    )
    return f" in {sighting.database}{branches},"


def _batch(batch: PublishedBatch | None) -> str:
    if batch is None:
        return "no batch of the ledger (run verify)"
    return (
        f"batch {batch.sequence}, published at {_time(batch.published_at)} by the "
        f"driver of epoch {batch.epoch}"
    )


def _time(moment: datetime | None) -> str:
    assert moment is not None
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _hex(content: bytes) -> str:
    shown = content[:_HEX_BYTES_MAX].hex()
    rest = len(content) - _HEX_BYTES_MAX
    return f"{shown} and {rest} bytes more" if rest > 0 else shown
