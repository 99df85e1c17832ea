"""Users' sessions: how long, how many events and pages, and what was done most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tallyweir import Append, Pipeline, Source, each_session

PIPELINE = "sessions"
TOPIC = "user-actions"
TABLE = "user_sessions"
ACTIONS = "session_actions"
#: A pause of so long ends a session.
GAP_SECONDS = 30
#: How far behind the newest action others are expected.
DELAY_SECONDS = 10


@each_session(
    table=TABLE,
    key=["user_id"],
    columns={
        "began_at": "timestamptz",
        "seconds": "double precision",
        "events": "bigint",
        "pages": "bigint",
        "most_frequent_action": "text",
    },
    event_time="acted_at",
    gap=timedelta(seconds=GAP_SECONDS),
    select=["action", "page"],
)
def user_sessions(
    _key: tuple[Any, ...], events: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Sum a session up; of actions that are equally frequent, the first by name."""
    actions = Counter(event["action"] for event in events)
    began_at, ended_at = events[0]["acted_at"], events[-1]["acted_at"]
    yield {
        "began_at": began_at,
        "seconds": (ended_at - began_at).total_seconds(),
        "events": len(events),
        "pages": len({event["page"] for event in events}),
        "most_frequent_action": min(actions, key=lambda name: (-actions[name], name)),
    }


pipeline = Pipeline(
    name=PIPELINE,
    source=Source(
        topic=TOPIC,
        schema="user_action.v1",
        event_id="event_id",
        event_time="acted_at",
        watermark_delay=timedelta(seconds=DELAY_SECONDS),
    ),
    outputs=(Append(table=ACTIONS), user_sessions),
)
