"""Send a file of events to a topic: its rows, at a pace, with faults on request."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TextIO

from tallyweir.schemas.codec import EventRecord
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import EncodeError
from tallyweir.schemas.text_rows import CsvRows, JsonRows, RowError
from tallyweir.services.produce.faults import (
    Expectation,
    FaultPlan,
    FaultRates,
    Message,
)
from tallyweir.services.produce.producer import EventProducer
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.stop_event import StopEvent

PROGRESS_INTERVAL_S = 1.0
_LOOK_AT_CLOCK_EVERY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitReport:
    """What was sent, and the result that a pipeline must produce.

    Attributes:
        topic: The topic that holds the messages.
        delivered: The number of acknowledged messages; equals the number sent.
        expected: The result that an exactly-once pipeline must produce.
        seconds: The time from the first message to the last acknowledgement.
    """

    topic: str
    delivered: int
    expected: Expectation
    seconds: float


def plan_faults(  # noqa: PLR0913 (keyword-only; each is a part of the plan)
    *,
    contract: Contract,
    event_id: str,
    partitions: int,
    key: str | None = None,
    rates: FaultRates | None = None,
    seed: int = 7,
) -> FaultPlan:
    """Plan the messages of one stream of records.

    Args:
        contract: The contract of the records.
        event_id: The field that holds the producer's ID.
        partitions: The topic's number of partitions.
        key: The field that holds the message's key; the ID by default.
        rates: How much goes wrong; nothing by default.
        seed: The same seed and records give the same messages.

    Raises:
        ConfigurationError: The contract lacks one of the fields, or invalid records are
            wanted and the ID's field is not a text.
    """
    types = {field.name: field.type for field in contract.fields}
    invalid = rates.invalid if rates else None
    for name in (event_id, key, invalid[0] if invalid else None):
        if name is not None and name not in types:
            raise ConfigurationError(
                "FIELD_UNKNOWN",
                saw=f"{contract.reference} has no field {name!r}.",
                why="The events' ID, their key or their error is made from it.",
                fix=f"Name one of {', '.join(types)}.",
            )
    if invalid and types[event_id] != "string":
        raise ConfigurationError(
            "ID_NOT_TEXT",
            saw=f"The event ID {event_id!r} is a {types[event_id]}.",
            why="emit makes the IDs of invalid records from text.",
            fix="Leave invalid records out.",
        )
    return FaultPlan(
        contract=contract,
        id_of=partial(_text_of, event_id, may_be_empty=False),
        id_field=event_id,
        key_of=None
        if key is None
        else lambda record: _text_of(key, record, may_be_empty=True).encode(),
        rates=rates,
        seed=seed,
        partitions=partitions,
    )


def _text_of(name: str, record: EventRecord, *, may_be_empty: bool) -> str:
    """Return the text of a field that every event needs.

    Raises:
        EncodeError: The record lacks the field, or it is null, or it is empty and must
            not be.
    """
    value = record.get(name)
    if value is None or (value == "" and not may_be_empty):
        raise EncodeError(
            "RECORD_MISFIT",
            saw=f"The record has no {name}.",
            why="The event's ID or its key is taken from it.",
            fix="Add the field to the record.",
        )
    return str(value)


def emit(  # noqa: PLR0913 (keyword-only)
    producer: EventProducer,
    *,
    topic: str,
    plan: FaultPlan,
    records: Iterable[EventRecord],
    id_header: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> EmitReport:
    """Send the plan's messages for the records; return once the broker has them all.

    Args:
        producer: A fresh producer: its counts are those of this call.
        topic: An existing topic.
        plan: A fresh plan.
        records: Good records of the plan's contract.
        id_header: A header that gets the ID too.
        on_progress: Called about every second with the numbers of messages sent and
            delivered.

    Raises:
        ConfigurationError: A record does not fit its contract.
        RetryableError: Not everything was delivered.

    Crash:
        Some messages are in the topic. The same call sends all of them again under the
        same IDs; these repeats do no harm.
    """
    started = shown = time.monotonic()
    for number, message in enumerate(_explained(plan, records)):
        producer.send(
            topic,
            key=message.key,
            payload=message.payload,
            partition=message.partition,
            headers=[(id_header, message.event_id)] if id_header else None,
        )
        if on_progress is not None and number % _LOOK_AT_CLOCK_EVERY == 0:
            now = time.monotonic()
            if now - shown >= PROGRESS_INTERVAL_S:
                shown = now
                on_progress(producer.sent, producer.delivered)
    delivered = producer.flush()
    return EmitReport(
        topic=topic,
        delivered=delivered,
        expected=plan.expectation,
        seconds=time.monotonic() - started,
    )


def _explained(plan: FaultPlan, records: Iterable[EventRecord]) -> Iterator[Message]:
    """Yield the plan's messages; an error names the input line of its record."""
    try:
        yield from plan.messages(records)
    except EncodeError as exc:
        line = getattr(records, "line_number", None)
        raise ConfigurationError(
            "INPUT_VALUE",
            saw=exc.saw if line is None else f"Line {line}: {exc.saw}",
            why=exc.why,
            fix="Correct the row and send the file again: repeats do no harm.",
        ) from exc


class PacedRecords:
    """Yields records no faster than a rate; can be read once.

    It catches up after the reader was busy, so the mean rate holds.

    Args:
        records: The records, possibly without end.
        rate: Records per second; None for as fast as they are read.
        events: Stop after this many records; None for all.
        seconds: Stop after this many seconds; None for no limit.
    """

    def __init__(
        self,
        records: Iterable[EventRecord],
        *,
        rate: float | None,
        events: int | None,
        seconds: float | None,
    ) -> None:
        self._records = records
        self._rate = rate
        self._events = events
        self._seconds = seconds
        self._stopped = StopEvent()

    @property
    def line_number(self) -> int | None:
        """The line in its file of the record yielded last, if it comes from a file."""
        return getattr(self._records, "line_number", None)

    def stop(self) -> None:
        """Stop yielding records; safe in a signal handler."""
        self._stopped.set()

    def __iter__(self) -> Iterator[EventRecord]:
        """Yield the records."""
        began = time.monotonic()
        for number, record in enumerate(self._records):
            if number == self._events:
                return
            due_s = 0.0 if self._rate is None else number / self._rate
            wait_s = began + due_s - time.monotonic()
            if self._seconds is not None and (
                due_s >= self._seconds or time.monotonic() - began >= self._seconds
            ):
                return
            if self._stopped.wait(wait_s) if wait_s > 0 else self._stopped.is_set():
                return
            yield record


class TypedRows:
    """The records of a CSV or JSON lines stream, in order; can be read once.

    Args:
        lines: The open text; for CSV with untranslated newlines (``newline=""``).
        contract: The contract of the rows.
        form: ``csv`` (with a header line) or ``jsonl``.
        limit: Stop after this many records; None for all.

    Attributes:
        line_number: The line of the row yielded last, from 1.
    """

    def __init__(
        self,
        lines: TextIO,
        contract: Contract,
        *,
        form: str,
        limit: int | None = None,
    ) -> None:
        assert form in {"csv", "jsonl"}
        self.line_number = 0
        self._lines = lines
        self._contract = contract
        self._form = form
        self._limit = limit

    def __iter__(self) -> Iterator[EventRecord]:
        """Yield one record per row.

        Raises:
            ConfigurationError: A row does not fit; the error names line, column and
                value.
        """
        try:
            rows = self._csv() if self._form == "csv" else self._json_lines()
            yield from islice(rows, self._limit)
        except UnicodeDecodeError as exc:
            raise self._refusal(
                "INPUT_MALFORMED", f"the text is not UTF-8 ({exc.reason})"
            ) from exc
        except RowError as exc:
            raise self._refusal(exc.code, exc.saw) from exc

    def _csv(self) -> Iterator[EventRecord]:
        reader = csv.reader(self._lines, strict=True)
        try:
            header = next(reader, None)
            self.line_number = 1
            if not header:
                raise self._refusal("INPUT_EMPTY", "there is no header line")
            rows = CsvRows(self._contract, header)
            for cells in reader:
                self.line_number = reader.line_num
                if cells:
                    yield rows.read(cells)
        except csv.Error as exc:
            self.line_number = reader.line_num
            raise self._refusal("INPUT_MALFORMED", f"not CSV ({exc})") from exc

    def _json_lines(self) -> Iterator[EventRecord]:
        rows = JsonRows(self._contract)
        for number, line in enumerate(self._lines, start=1):
            self.line_number = number
            if line.strip():
                yield rows.read_text(line)

    def _refusal(self, code: str, saw: str) -> ConfigurationError:
        return ConfigurationError(
            code,
            saw=f"Line {self.line_number}: {saw}.",
            why=f"Each row must be a {self._contract.reference}; those before this "
            "line may have been sent.",
            fix="Correct the row and send the file again: repeats do no harm.",
        )
