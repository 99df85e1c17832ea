"""The report of a look, as paragraphs and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tallyweir.schemas.codec import decode
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.pipeline.events.source import AVRO
from tallyweir.services.look.id_candidates import KEY, IdCandidate
from tallyweir.services.look.identity_store import IdentityCounts
from tallyweir.services.look.looked_record import ReadExtent, TopicFacts
from tallyweir.services.look.pipeline_proposal import Proposal, main_kind
from tallyweir.services.look.shown_values import show_json, show_rows
from tallyweir.services.look.time_candidates import KAFKA_TIMESTAMP
from tallyweir.services.look.topic_profile import TopicProfile
from tallyweir.services.look.value_kinds import ValueKind
from tallyweir.sinks.protocol.durations import format_duration

_IDS_SHOWN = 8
_SCHEMA_IDS_SHOWN = 5
_MS_OF_S = 1_000
#: Kafka's way to say "for ever" is the greatest number; a century is no plan either.
_FOR_EVER_MS = 100 * 365 * 86_400 * _MS_OF_S
#: What to do about topics that this release does not read.
_ADVICE = {
    ValueKind.JSON: "The documents have no field that could be a column.",
    ValueKind.BROKEN_JSON: "Correct the producer: every record would be a dead letter.",
}
_NOT_READ = "It reads JSON objects, changes of Debezium as JSON, and Avro and Protobuf "
_NOT_READ += "in Confluent's framing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the report."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


Part = str | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LookReport:
    """All that a look has found.

    Attributes:
        key_counts: How the keys come again.
        is_redacted: Whether no value is shown.
        now_ms: The clock, in milliseconds since 1970.
    """

    facts: TopicFacts
    extent: ReadExtent
    profile: TopicProfile
    proposal: Proposal | None
    key_counts: IdentityCounts | None
    is_redacted: bool
    now_ms: int

    @property
    def read(self) -> str:
        """What was read, as one line."""
        offsets = self.facts.offset_count
        if self.extent.is_whole:
            return f"all {self.extent.records:,} records of {self.facts.topic}"
        return (
            f"{self.extent.records:,} of about {offsets:,} records of "
            f"{self.facts.topic}, from the start, middle and end of each partition"
        )

    def parts(self) -> Iterator[Part]:
        """Yield the report, part by part."""
        partitions = len(self.facts.offsets)
        yield (
            f"{self.facts.topic}: {partitions} partition{'s' * (partitions != 1)}, "
            f"{self.facts.offset_count:,} offsets; read {self.read}."
        )
        if self.extent.is_whole:
            yield "Figures are exact."
        else:
            yield "Figures are estimates from this sample; --all reads everything."
        yield from self._format_parts()
        if self.proposal is not None:
            yield from self._field_parts(self.proposal)
            yield from self._id_parts(self.proposal)
            yield from self._time_parts(self.proposal)
        yield from self._kafka_parts()
        if self.proposal is not None and not self.proposal.of_registry:
            yield from self._row_parts(self.proposal)

    def _format_parts(self) -> Iterator[Part]:
        profile = self.profile
        yield "\nFormat"
        for kind, count in profile.kinds.most_common():
            yield f"  {share(count, profile.values)} {kind}"
        for schema_id, count in profile.schema_ids.most_common(_SCHEMA_IDS_SHOWN):
            contract = profile.contracts.get(schema_id)
            named = contract.reference if contract else "not known here"
            yield f"  schema id {schema_id}: {count:,} values, {named}"
        for reason, count in profile.faults.most_common():
            yield f"  {count:,} would be dead letters: {reason}"
        main = main_kind(profile)
        others = profile.values - (profile.kinds[main] if main else 0)
        others -= sum(profile.faults.values())
        if self.proposal is None and profile.kinds:
            ((most, _),) = profile.kinds.most_common(1)
            yield f"  No pipeline is proposed. {_ADVICE.get(most, _NOT_READ)}"
        elif others > 0:
            yield f"  {others:,} values of other kinds would be dead letters."

    def _field_parts(self, proposal: Proposal) -> Iterator[Part]:
        yield "\nFields"
        if proposal.of_registry:
            yield (
                "  The schema registry has them. If its contract is in a file with the "
                "schema id, give it by --schema FILE.avsc."
                if proposal.of_registry == AVRO
                else "  The schema registry has them."
            )
            return
        if proposal.contract is not None:
            rows = [
                (one.name, one.type, "yes" if one.nullable else "no")
                for one in proposal.contract.fields
            ]
            yield Table(columns=("field", "type", "nullable"), rows=rows)
            return
        fields = (
            self.profile.changes.fields if proposal.envelope else self.profile.fields
        )
        yield Table(
            columns=("field", "type", "null or missing", "example", "note"),
            rows=[
                (
                    one.name,
                    one.type.sql,
                    share(one.lacking, fields.documents) if one.lacking else "never",
                    show_json(one.profile.example, redacted=self.is_redacted),
                    one.type.note,
                )
                for one in proposal.fields
            ],
        )
        if fields.is_full:
            yield "  There are more names; unknown: rest keeps what is not named."

    def _id_parts(self, proposal: Proposal) -> Iterator[Part]:
        yield "\nID"
        if proposal.ids:
            yield Table(
                columns=("candidate", "unique", "repeats", "conflicts", "missing", ""),
                rows=[_id_row(one) for one in proposal.ids[:_IDS_SHOWN]],
            )
        chosen = proposal.event_id
        if chosen is None:
            yield (
                "  event_id: position. No field stands for one payload each, so what "
                "a producer sends twice counts twice."
            )
            return
        yield (
            f"  event_id: {proposal.id_name}. Repeats, which are dropped: "
            f"{chosen.counts.repeats:,}; conflicts, which are dead letters: "
            f"{chosen.counts.conflicts:,}."
        )
        if not self.extent.is_whole:
            yield "  A sample misses repeats that lie far apart; --all counts them."

    def _time_parts(self, proposal: Proposal) -> Iterator[Part]:
        yield "\nEvent time"
        yield Table(
            columns=("candidate", "loses none", "loses 0.1 %", "missing", "ahead", ""),
            rows=[
                (
                    one.name,
                    show_delay(one.for_all),
                    show_delay(one.for_most),
                    one.lacking,
                    one.future,
                    f"if it is epoch {one.unit}" if one.unit else "",
                )
                for one in proposal.times
            ],
        )
        delay = format_duration(proposal.watermark_delay)
        yield f"  event_time: {proposal.time_name}, watermark_delay: {delay}."
        if proposal.time_name == KAFKA_TIMESTAMP:
            yield "  No field is a usable time in every event."

    def _kafka_parts(self) -> Iterator[Part]:
        profile, settings = self.profile, self.facts.settings
        yield "\nKafka"
        keyless = profile.records - profile.keys
        yield f"  key: {share(keyless, profile.records)} of records have none" + (
            f"; {share(profile.key_texts, profile.keys)} of the others are text"
            if profile.keys
            else ""
        )
        counts = self.key_counts
        if counts is not None and counts.values:
            most = share(counts.most, counts.values)
            yield f"  key: {counts.distinct:,} different; the most frequent has {most}"
        yield f"  tombstones: {profile.tombstones:,}"
        yield (
            f"  offsets without a record: {self.extent.gaps:,} (ends of transactions, "
            "aborted or compacted records)"
        )
        for name in ("compression.type", "cleanup.policy", "message.timestamp.type"):
            if name in settings:
                yield f"  {name}: {settings[name]}"
        yield f"  retention: {self._retention()}"

    def _retention(self) -> str:
        given = self.facts.settings.get("retention.ms")
        if given is None:
            return "unknown; the topic's settings could not be read"
        if not 0 <= int(given) < _FOR_EVER_MS:
            return "without a limit"
        kept = _rough(int(given))
        oldest = self.profile.oldest_ms
        if "delete" not in self.facts.settings.get("cleanup.policy", "delete"):
            return "compacted only; nothing goes by age"
        if oldest is None:
            return kept
        left = oldest + int(given) - self.now_ms
        if left <= 0:
            return f"{kept}; the oldest unread data may go at any moment"
        return f"{kept}; the oldest unread data goes in {_rough(left)} at the earliest"

    def _row_parts(self, proposal: Proposal) -> Iterator[Part]:
        contract = proposal.load_contract()
        writers = {contract.schema_id: contract}
        records = []
        for row in self.profile.rows:
            try:
                records.append(decode(row, writers))
            except DecodeError:
                # Of another contract, or of a type that is rare here.
                continue
        names = [one.name for one in contract.fields]
        columns, cells = show_rows(records, names, redacted=self.is_redacted)
        yield "\nFirst rows"
        yield Table(columns=columns, rows=cells)


def share(count: int, total: int) -> str:
    """Write a share so that neither none nor all is claimed by rounding."""
    if not total or not count:
        return "0 %"
    if count == total:
        return "100 %"
    percent = min(max(100 * count / total, 0.1), 99.9)
    return f"{percent:.1f} %"


def _id_row(one: IdCandidate) -> tuple[object, ...]:
    notes = []
    if one.is_partly:
        notes.append("the first records only")
    if one.name == KEY and one.unique_share == 1 and not one.lacking:
        notes.append("an ID with key: {format: text} and event_id: key")
    return (
        one.name,
        share(one.counts.distinct, one.counts.values),
        one.counts.repeats,
        one.counts.conflicts,
        one.lacking,
        "; ".join(notes),
    )


def show_delay(delay: timedelta) -> str:
    """Write a delay in its two largest units, rounded up."""
    milliseconds = delay // timedelta(milliseconds=1)
    if milliseconds < 10 * _MS_OF_S:
        return f"{milliseconds} ms"
    seconds = -(-milliseconds // _MS_OF_S)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    if days:
        return f"{days} d {hours + bool(minutes or seconds)} h"
    if hours:
        return f"{hours} h {minutes + bool(seconds)} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _rough(milliseconds: int) -> str:
    """Write a duration in its largest whole unit."""
    seconds = timedelta(seconds=milliseconds // _MS_OF_S)
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if seconds >= 2 * unit:
            return format_duration(seconds // unit * unit)
    return format_duration(seconds)
