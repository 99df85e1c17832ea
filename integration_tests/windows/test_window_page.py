"""The rows that docs/windows.md shows are those that its events make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.window_model import Event, Rules
from integration_tests.harness.window_world import Arrival, WindowWorld

_PAGE = Path(__file__).parents[2] / "docs" / "windows.md"

#: The tables of the page, by the line before each.
_TABLES = {
    "`fixed: 10 seconds`": Rules(lateness=10),
    "`sliding: {size: 10 seconds, every: 5 seconds}`": Rules(every=5, lateness=10),
    "`session: {gap: 6 seconds}`": Rules(gap=6, lateness=10),
    "`fixed: 10 seconds`, `early: off`": Rules(lateness=10, early_every=None),
    "`fixed: 10 seconds`, `early: every 10 seconds`": Rules(
        lateness=10, early_every=10
    ),
    "`fixed: 10 seconds`, `panes: discarding`": Rules(lateness=10, discarding=True),
}
#: After which batches the page shows a table.
_SHOWN = (3, 6)


def _table_behind(line: str) -> list[list[str]]:
    """Return the cells of the table that follows a line, without its head."""
    (found,) = re.findall(
        rf"^{re.escape(line)}:\n\n((?:\|.*\n)+)", _PAGE.read_text(), re.MULTILINE
    )
    rows = [row.strip("| ").split("|") for row in found.splitlines()]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.fixture
def transaction(server_dsn: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Nothing is left of it."""
    with psycopg.connect(server_dsn) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS tallyweir_state")
        yield connection
        connection.rollback()


def _rows(world: WindowWorld, batch: int) -> list[list[str]]:
    """Write the result table as the page does."""
    written = []
    for _, row in sorted(world.rows(), key=repr):
        # Behind the total are aggregates that the page leaves out.
        start, end, _, events, total, _, _, _, _, _, *pane = row
        cells = [f"{start} to {end}", events, total, *pane]
        written.append((start, [str(batch), *map(_cell, cells)]))
    return [cells for _, cells in sorted(written, key=lambda one: int(str(one[0])))]


def _cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("line", _TABLES)
def test_the_page_shows_the_rows_that_its_events_make(
    line: str, transaction: psycopg.Connection[TupleRow]
) -> None:
    """Of each kind of windows and panes, after two of the batches."""
    world = WindowWorld(transaction, _TABLES[line])
    before = None
    found = []
    for number, planned_at, events, watermark in _table_behind("The events"):
        arrivals = [
            Arrival(
                history=0,
                event=Event(
                    at=int(at), key=None, value=int(amount), position=(0, int(at))
                ),
                task=0,
            )
            for at, amount in re.findall(r"(\d+): (\d+)", events)
        ]
        after = None if watermark == "none" else int(watermark)
        batch = int(number)
        world.publish(
            arrivals, before, after, sequence=batch, planned_at=int(planned_at)
        )
        before = after
        if batch in _SHOWN:
            found += _rows(world, batch)
    assert _table_behind(line) == found
