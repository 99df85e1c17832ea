"""Sends selected dead letters to their topics again, in order, and notes each.

The driver reads them like any other record. A dead letter claims no ID, so the first
copy that becomes a result claims it, and every further one is a duplicate: a letter
that was sent twice counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.operate.redrive.source_records import (
    Headers,
    KnownRecord,
    SourceRecords,
)
from tallyweir.services.produce.producer import Delivery, EventProducer
from tallyweir.sinks.faultpoints import RedrivePoint, making
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import AuditedPipeline
from tallyweir.sinks.postgres.steering import (
    RecordPosition,
    RedriveSelection,
    WaitingLetter,
)
from tallyweir.sinks.protocol.errors import TallyweirError

#: Letters that are noted and sent together; a letter may have a megabyte.
_CHUNK = 100


@dataclass(slots=True, kw_only=True)
class RedriveReport:
    """The outcome of a redrive.

    Attributes:
        sent: Letters that Kafka has acknowledged; after a dry run, letters to send.
        without_headers: The part of them sent without their original headers, which the
            topic no longer has.
        done_before: Letters skipped because they were sent before.
        uncertain: Letters skipped because they may have been sent before, and the
            pipeline remembers no IDs that would make a second copy harmless.
        not_read: Letters skipped because the pipeline does not read their topic, or
            because a batch run has read them.
        headers_lost: Letters skipped because the topic no longer has their headers, and
            the headers held the event's ID or columns.
        same_version: The part of those sent that died under the version in force: they
            die again if only the pipeline's file decides.
    """

    sent: int = 0
    without_headers: int = 0
    done_before: int = 0
    uncertain: int = 0
    not_read: int = 0
    headers_lost: int = 0
    same_version: int = 0

    def told(self, *, dry_run: bool) -> tuple[str, ...]:
        """Return the report as lines for people."""
        sent = "would be sent" if dry_run else "sent"
        counted = {
            f"{_letters(self.sent)} {sent} again": self.sent,
            "of them died under the version in force, and will die again unless a "
            "lookup, a model, a table or a contract has changed: start or update the "
            "pipeline with the corrected file first": self.same_version,
            "of them without headers, because the topic no longer has the records": (
                self.without_headers
            ),
            "skipped: sent again before (--again sends them once more)": (
                self.done_before
            ),
            "skipped: possibly sent again before, and this pipeline remembers no "
            "IDs, so a copy would count twice (--again sends them)": self.uncertain,
            "skipped: from a batch run, or from a topic that the pipeline does not "
            "read": (self.not_read),
            "skipped: their ID, or a column, was in headers, and the topic no longer "
            "has the records": (self.headers_lost),
        }
        first, *others = counted.items()
        return (
            f"{first[0]}.",
            *(f"{count:,} {what}." for what, count in others if count),
            *(["Nothing was changed (--dry-run)."] if dry_run else []),
        )


def redrive(  # noqa: PLR0913 (keyword-only; each is a part of what is asked)
    home: Connection[TupleRow],
    bootstrap: str,
    selection: RedriveSelection,
    *,
    reason: str,
    again: bool = False,
    dry_run: bool = False,
) -> RedriveReport:
    """Send dead letters to their topics again, with key, payload and headers.

    Each goes to the partition that it came from, in the order of positions. Letters
    that die while this runs are left for the next time.

    Args:
        home: A connection to the home, not inside a transaction.
        bootstrap: Address of the broker.
        selection: The letters to send.
        reason: Explains the copies to later readers; kept for good.
        again: Also send letters that were, or may have been, sent before.
        dry_run: Only report what would be done.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``, or
            ``TOPIC_MISSING``.
        RetryableError: ``REDRIVE_AT_WORK``, ``UNDELIVERED``, or a server does not
            answer.

    Crash:
        Letters noted as sent are in Kafka, and the next call skips them. Letters that
        were being sent may be in Kafka. The next call sends them again if the pipeline
        remembers IDs, and then they count once.
    """
    steering.check_reason(reason)
    with (
        steering.redriving(home, selection.pipeline) as audited,
        closing(SourceRecords(bootstrap)) as records,
    ):
        run = _Redrive(home, bootstrap, audited, reason, again=again, dry_run=dry_run)
        after = RecordPosition(topic="", partition=-1, offset=-1)
        while letters := steering.read_letters(
            home,
            selection,
            through_sequence=audited.last_sequence,
            after=after,
            limit=_CHUNK,
        ):
            run.take(letters, records)
            after = letters[-1].position
    return run.report


class _Redrive:
    def __init__(  # noqa: PLR0913 (as above)
        self,
        home: Connection[TupleRow],
        bootstrap: str,
        audited: AuditedPipeline,
        reason: str,
        *,
        again: bool,
        dry_run: bool,
    ) -> None:
        self.report = RedriveReport()
        self._home = home
        self._audited = audited
        self._reason = reason
        self._again = again
        self._dry_run = dry_run
        # Check the topics first: a client would create a missing one.
        KafkaAdmin(bootstrap, *audited.source.topics).read_positions()
        self._producer = EventProducer(bootstrap)

    def take(self, letters: Sequence[WaitingLetter], records: SourceRecords) -> None:
        """Send the letters of one page that need sending."""
        wanted = [one for one in letters if self._is_wanted(one)]
        kept = records.read_headers(
            KnownRecord(position=one.position, key=one.key, payload=one.payload)
            for one in wanted
        )
        chosen: list[tuple[WaitingLetter, Headers]] = []
        for letter in wanted:
            headers = kept.get(letter.position)
            if headers is None:
                headers = _rebuilt_headers(letter, self._audited)
                if headers is None:
                    self.report.headers_lost += 1
                    continue
                self.report.without_headers += 1
            chosen.append((letter, headers))
        self.report.sent += len(chosen)
        self.report.same_version += sum(
            letter.is_of_version_in_force for letter, _ in chosen
        )
        if chosen and not self._dry_run:
            self._send(chosen)

    def _is_wanted(self, letter: WaitingLetter) -> bool:
        if letter.topic not in self._audited.source.topics:
            self.report.not_read += 1
            return False
        if self._again or not letter.attempts:
            return True
        if letter.is_sent:
            self.report.done_before += 1
            return False
        remembers_ids = self._audited.horizon_s is not None
        if not remembers_ids:
            self.report.uncertain += 1
        return remembers_ids

    def _send(self, chosen: Sequence[tuple[WaitingLetter, Headers]]) -> None:
        pipeline = self._audited.name
        letters = [letter for letter, _ in chosen]
        with making(RedrivePoint.ANNOUNCED):
            steering.begin_redrive(self._home, pipeline, letters, reason=self._reason)
        acknowledged: list[tuple[WaitingLetter, int, int]] = []

        def note(letter: WaitingLetter, delivery: Delivery) -> None:
            if delivery.is_delivered:
                acknowledged.append((letter, delivery.partition, delivery.offset))

        try:
            with making(RedrivePoint.SENT):
                for letter, headers in chosen:
                    self._producer.send(
                        letter.topic,
                        key=letter.key,
                        payload=letter.payload,
                        partition=letter.partition,
                        headers=list(headers),
                        on_report=partial(note, letter),
                    )
                self._producer.flush()
        except TallyweirError:
            # These are in Kafka, although others are not.
            steering.note_sent(self._home, pipeline, acknowledged)
            raise
        steering.note_sent(self._home, pipeline, acknowledged)


def _letters(count: int) -> str:
    return f"{count:,} dead letter" + ("" if count == 1 else "s")


def _rebuilt_headers(letter: WaitingLetter, audited: AuditedPipeline) -> Headers | None:
    """Return headers for a record whose own are gone; None if they are unknown.

    The letter keeps the ID, but not the source that makes it unique, nor what else the
    pipeline reads of headers.
    """
    if audited.needs_headers:
        return None
    if audited.id_header is None:
        return ()
    if audited.id_has_source or letter.event_id is None:
        return None
    return ((audited.id_header, letter.event_id.encode()),)
