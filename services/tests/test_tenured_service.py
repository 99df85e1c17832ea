"""Services of which one works at a time, over locks that are a set in memory."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from tallyweir.services.process.repeating_service import TenuredService
from tallyweir.sinks.postgres.server.locks import LockedSession
from tallyweir.sinks.protocol.errors import RetryableError


class _Home:
    """A home database: who holds its lock, and whether it answers."""

    def __init__(self) -> None:
        self.sessions: list[_Session] = []
        self.holder: _Session | None = None
        self.answers = True

    def check(self) -> None:
        if not self.answers:
            raise RetryableError("POSTGRES_UNREACHABLE", saw="", why="", fix="")


class _Session(LockedSession):
    def __init__(self, home: _Home) -> None:
        home.check()
        self._home = home
        home.sessions.append(self)

    def try_lock(self) -> bool:
        self._home.check()
        self._home.holder = self._home.holder or self
        return self._home.holder is self

    def close(self) -> None:
        if self._home.holder is self:
            self._home.holder = None


class _Tenure:
    def __init__(self, home: _Home) -> None:
        self._home = home

    def run_round(self) -> list[str]:
        self._home.check()
        return []


class _Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.active = Gauge("active", "-", registry=self.registry)
        self.failures = Counter("failures", "-", ["code"], registry=self.registry)


class _Service(TenuredService[_Session]):
    def __init__(self, home: _Home) -> None:
        self.metrics = _Metrics()
        super().__init__("test", every_s=1, silence_max_s=1, metrics=self.metrics)
        self._home = home

    @property
    def is_active(self) -> bool:
        return self.metrics.registry.get_sample_value("active") == 1

    def _open_session(self) -> _Session:
        return _Session(self._home)

    def _make_tenure(self, session: _Session) -> _Tenure:
        assert self._home.holder is session, "who works holds the lock"
        return _Tenure(self._home)


@pytest.fixture
def home() -> _Home:
    """Answers, and nobody holds its lock."""
    return _Home()


def test_one_works_and_the_next_takes_over(home: _Home) -> None:
    """Who stands by keeps its session, and is ready all the same."""
    first, second = _Service(home), _Service(home)
    for service in (first, second, first, second):
        assert [] == service.run_round()
    assert (True, False) == (first.is_active, second.is_active)
    assert [None, None] == [first.rounds.check(), second.rounds.check()]
    assert (True, []) == first.run_once()
    assert [] == second.run_round()
    assert (False, True) == (first.is_active, second.is_active)
    assert 2 == len(home.sessions)


def test_an_error_ends_the_tenure_and_its_session(home: _Home) -> None:
    """The lock is free for another, and the next tenure has a session of its own."""
    service = _Service(home)
    service.run_round()
    home.answers = False
    for _ in range(2):
        assert ["POSTGRES_UNREACHABLE"] == service.run_round()
        assert home.holder is None
        assert not service.is_active
    home.answers = True
    assert (True, []) == service.run_once()
    assert 2 == len(home.sessions)


def test_once_lets_go_of_the_lock(home: _Home) -> None:
    """A round that is done by hand keeps no service from working."""
    assert (True, []) == _Service(home).run_once()
    assert home.holder is None
    working = _Service(home)
    working.run_round()
    assert (False, []) == _Service(home).run_once()
    assert working.is_active
