"""The words for what was seen in a record may quote it: they need a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
from fastapi.routing import APIRoute
from psycopg.types.json import Jsonb

from integration_tests.harness.page_asker import PageAsker, asking
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.application import MonitorApplication
from tallyweir.services.monitor.tokens import Role

#: As a value of an event would be, in whatever quotes one.
_QUOTED = "4929-1234"
_QUOTES = (
    f"UPDATE tallyweir.dead_letter SET detail = 'card {_QUOTED} fits no column'",
    f"UPDATE tallyweir.dead_letter SET key = '{_QUOTED}', payload = '{_QUOTED}'",
    f"UPDATE tallyweir.late_event SET payload = '{_QUOTED}'",
    f"UPDATE tallyweir.expired_event SET payload = '{_QUOTED}'",
    """UPDATE tallyweir.batch_measures SET measures =
    measures || '{"unnamed": {"4929-1234": 3}}'""",
    """INSERT INTO tallyweir.driver_log (pipeline, at, level, event, sequence, detail)
    VALUES (%(pipeline)s, now(), 'error', 'driver ended', 3, %(detail)s)""",
)
_SAID = {"error_code": "SPARK_QUERY_FAILED", "saw": f"'{_QUOTED}' cannot be cast"}

#: A dead letter of the scenario.
_PLACE = {
    "name": PIPELINE,
    "reason": "UNDECODABLE",
    "topic": "orders",
    "partition": 0,
    "offset": 11,
    "fork": "fork",
    "profile_id": 1,
}
_EVENT = {"event_id": "0-11"}
_QUOTING = ("dead-letters", "dead-letters/UNDECODABLE", "why", "logs", "unnamed-fields")


@dataclass(frozen=True, kw_only=True)
class _Asker:
    """Asks a monitor of a pipeline whose tables quote an event."""

    page: PageAsker

    def get(self, path: str, token: str | None = None) -> httpx.Response:
        """Ask as somebody with a token, or without one."""
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        return self.page.client.get(path, params=_EVENT, headers=bearer)

    def first_look(self) -> str:
        """Return what who watches is told first."""
        with self.page.client.stream("GET", "/api/looks") as answer:
            return next(
                line for line in answer.iter_lines() if line.startswith("data: ")
            )


@pytest.fixture
def asker(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario, tmp_path: Path
) -> Iterator[_Asker]:
    """A monitor with tokens, and an event's value wherever one can be."""
    scenario.write_samples()
    scenario.write_measures()
    with psycopg.connect(home_dsn) as home:
        for statement in _QUOTES:
            home.execute(statement, {"pipeline": PIPELINE, "detail": Jsonb(_SAID)})
    with asking(home_dsn, kafka_bootstrap, tmp_path) as page:
        yield _Asker(page=page)


def _paths(home_dsn: str, bootstrap: str) -> list[str]:
    """Every path that answers, as a request has it."""
    application = MonitorApplication(
        home_dsn=home_dsn, bootstrap=bootstrap, acts_dsn=home_dsn
    )
    return [
        route.path.replace(":path", "").format(**_PLACE)
        for route in application.pages.routes
        if isinstance(route, APIRoute)
        and "GET" in (route.methods or ())
        and route.path != "/api/looks"
    ]


def test_without_a_token_no_path_quotes_a_record(
    asker: _Asker, home_dsn: str, kafka_bootstrap: str
) -> None:
    """Whatever paths there are: reasons and counts are told, and no value."""
    asked = [*_paths(home_dsn, kafka_bootstrap), "/metrics"]
    assert len(asked) > 20
    for path in asked:
        text = asker.get(path).text
        for value in (_QUOTED, _QUOTED.encode().hex(), "<JFK>"):
            assert value not in text, path
    assert _QUOTED not in asker.first_look()
    (group,) = asker.get(f"/api/pipelines/{PIPELINE}/dead-letters").json()
    assert (group["letters"], group["last_detail"]) == (2, None)
    (told,) = asker.get(f"/api/pipelines/{PIPELINE}/why").json()["told"]
    assert "became a dead letter" in told
    assert "UNDECODABLE." in told
    (field,) = asker.get(f"/api/pipelines/{PIPELINE}/unnamed-fields").json()
    assert (field["path"], field["line"]) == (None, None)
    assert field["records"] % 3 == 0
    (line,) = asker.get(f"/api/pipelines/{PIPELINE}/logs").json()
    assert line["detail"] == {"error_code": "SPARK_QUERY_FAILED"}


@pytest.mark.parametrize("rest", _QUOTING)
def test_the_words_are_for_who_has_a_token(asker: _Asker, rest: str) -> None:
    """A viewer's is enough; a wrong one is not taken for none."""
    path = f"/api/pipelines/{PIPELINE}/{rest}"
    shown = asker.get(path, asker.page.tokens[Role.VIEWER])
    assert shown.status_code == 200, shown.text
    assert _QUOTED in shown.text
    assert asker.get(path, "twm_0").status_code == 401
