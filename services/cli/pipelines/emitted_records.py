"""The records that ``emit`` sends: rows of a file, or made-up events."""

from __future__ import annotations

import datetime as dt
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallyweir.schemas.codec import EventRecord
from tallyweir.schemas.contract import Contract
from tallyweir.services.local.datasets.made_up import DATASETS
from tallyweir.services.local.templates.template import Template, read_template
from tallyweir.services.produce.emit import PacedRecords, TypedRows
from tallyweir.sinks.protocol.errors import ConfigurationError

_FORMS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The supply of records: a file, or a template's made-up events.

    Attributes:
        pipeline: The pipeline file that the records are for.
        source: Path of a file, ``-`` for standard input, or None.
        template: The template of the made-up events, if there is no file.
    """

    pipeline: Path
    source: str | None
    template: Template | None

    @contextmanager
    def open(
        self, contract: Contract, *, limit: int | None, seed: int
    ) -> Iterator[Iterable[EventRecord]]:
        """Provide the records while the block runs.

        Raises:
            ConfigurationError: ``INPUT_FORM``, ``INPUT_MISSING`` or
                ``DATASET_MISMATCH``.
        """
        if self.template is not None:
            yield _make_up(self.template, contract, seed)
        elif self.source == "-":
            yield TypedRows(sys.stdin, contract, form="jsonl", limit=limit)
        else:
            path = Path(self.source or "")
            form = _FORMS.get(path.suffix.lower())
            if form is None:
                raise ConfigurationError(
                    "INPUT_FORM",
                    saw=f"--input is {self.source!r}.",
                    why="The file's ending says how to read it.",
                    fix=f"Use a file that ends in {', '.join(_FORMS)}, or - for stdin.",
                )
            try:
                file = path.open(encoding="utf-8", newline="")
            except OSError as exc:
                raise ConfigurationError(
                    "INPUT_MISSING",
                    saw=f"{path} cannot be read ({exc.strerror}).",
                    why="The file holds the events.",
                    fix="Correct the path.",
                ) from exc
            with file:
                yield TypedRows(file, contract, form=form, limit=limit)


def choose_supply(
    pipeline: Path | None, source: str | None, template: str | None
) -> Supply:
    """Find the supply that the options of a user name.

    Raises:
        ConfigurationError: ``SUPPLY_UNCLEAR``: no pipeline, or not exactly one of a
            file and a template; or as ``read_template``.
    """
    chosen = None if template is None else read_template(template)
    file = pipeline or (None if chosen is None else chosen.file)
    if file is None or (source is None) == (chosen is None):
        raise ConfigurationError(
            "SUPPLY_UNCLEAR",
            saw="There is "
            + ("no pipeline file." if file is None else "not one supply of events."),
            why="emit reads events from a file, or makes them up for a template.",
            fix="Write emit PIPELINE --input FILE, or emit --template NAME.",
        )
    return Supply(pipeline=file, source=source, template=chosen)


@contextmanager
def until_interrupted(records: PacedRecords) -> Iterator[PacedRecords]:
    """Let Ctrl-C and SIGTERM end the records instead of the process.

    The command waits for the records sent so far, and reports them.
    """
    handlers = {
        number: signal.signal(number, lambda *_: records.stop())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield records
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _make_up(
    template: Template, contract: Contract, seed: int
) -> Iterator[EventRecord]:
    dataset = DATASETS[template.dataset]
    if dataset.contract != contract.reference:
        raise ConfigurationError(
            "DATASET_MISMATCH",
            saw=f"The pipeline reads {contract.reference}.",
            why=f"The events of {template.name} are {dataset.contract}.",
            fix="Send from a file, with --input.",
        )
    return dataset.events(seed, lambda: dt.datetime.now(dt.UTC))
