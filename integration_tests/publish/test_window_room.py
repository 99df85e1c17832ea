"""Rows of windows that each batch changes have room to change in."""

from __future__ import annotations

import psycopg

from integration_tests.harness.window_model import Event, Rules
from integration_tests.harness.window_world import Arrival, WindowWorld

#: Enough to fill many pages of each table.
_GROUPS = 500

_UPDATES = """
SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE n_tup_upd > 0
"""


def test_a_window_that_changes_stays_on_its_page(server_dsn: str) -> None:
    """So no index is told of it: of its state, and of its row."""
    with psycopg.connect(server_dsn) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS tallyweir_state")
        world = WindowWorld(connection, Rules())
        for batch in (1, 2):
            arrivals = [_arrival(group, batch) for group in range(_GROUPS)]
            world.publish(arrivals, None, None, sequence=batch, planned_at=0)
        updates = connection.execute(_UPDATES).fetchall()
        connection.rollback()
    assert [(_GROUPS, _GROUPS)] * 2 == updates


def _arrival(group: int, batch: int) -> Arrival:
    event = Event(at=0, key="a", value=1, position=(0, batch))
    return Arrival(history=group, event=event, task=0)
