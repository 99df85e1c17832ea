"""From observations to alerts: what begins, fires, lasts and ends, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.services.alerts.alert_rule import (
    AlertRule,
    DeadLetters,
    DriverGone,
    Freshness,
    InDoubt,
    LagGrowth,
    Observation,
    OverBudget,
    PausedTooLong,
    RetentionHeadroom,
    Stall,
)
from tallyweir.services.alerts.lifecycle import REFRESH, find_changes, follow
from tallyweir.services.operate.cost.estimate import Budget, Prices
from tallyweir.sinks.postgres.audit import Usage
from tallyweir.sinks.postgres.records.alert_book import Alert, Severity
from tallyweir.sinks.protocol.guarantee import Guarantee

_NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
_QUIET = Observation(
    pipeline="orders",
    observed_at=_NOW,
    last_sequence=7,
    lag=0,
    freshness_s=1.0,
    dead_shares={timedelta(minutes=15): 0.0},
    in_doubt_s=0.0,
    headroom_s=math.inf,
    is_driver_gone=False,
    paused_s=None,
    usages={},
)
_MINUTE = timedelta(minutes=1)
_STALL = Stall(channels=("ops",), when="stall", lasting=5 * _MINUTE)
_GROWTH = LagGrowth(
    channels=("ops",), when="lag_growth", above=100, lasting=2 * _MINUTE
)
_PRICES = Prices(currency="EUR", vcpu_hour=1.0, budget=Budget(per_day=24.0))
_OLD = Freshness(channels=("ops",), when="freshness", above=timedelta(seconds=60))


def _used(cpu_s: float, *, read: int) -> dict[timedelta, Usage]:
    """So many CPU seconds over an hour."""
    usage = Usage(
        pipeline="orders",
        guarantee=Guarantee.EXACTLY_ONCE,
        deduplicates=True,
        began_at=_NOW - timedelta(hours=1),
        ended_at=_NOW,
        batches=1,
        read=read,
        committed=read,
        wal_bytes=0,
        cpu_seconds={"driver": cpu_s},
        publish_seconds={},
        steps={},
        outputs={},
        batch_cpu_s=None,
        batch_cpu_r2=None,
    )
    return {timedelta(days=1): usage}


def _at(minutes: float, **values: object) -> Observation:
    observed_at = _NOW + timedelta(minutes=minutes)
    return replace(_QUIET, observed_at=observed_at, **values)  # type: ignore[arg-type]


def _follow_all(rule: AlertRule, seen: Iterable[Observation]) -> list[Alert | None]:
    """Follow one rule through observations in order."""
    alert: Alert | None = None
    states = []
    for one in seen:
        alert = follow("r", rule, one, alert)
        states.append(alert)
    return states


def _words(states: Iterable[Alert | None]) -> list[str]:
    return [
        "quiet" if one is None else "firing" if one.fired_at else "pending"
        for one in states
    ]


def test_a_stall_fires_after_its_time_and_not_before() -> None:
    """The time counts from when there was lag and no new batch, seen together."""
    states = _follow_all(_STALL, [_at(m, lag=3) for m in (0, 4, 4.99, 5, 6)])
    assert ["pending", "pending", "pending", "firing", "firing"] == _words(states)
    assert states[3] is not None
    assert states[4] is not None
    assert (_NOW, _NOW + 5 * _MINUTE) == (states[3].since, states[3].fired_at)
    assert states[3].fired_at == states[4].fired_at, "it fires once"


def test_every_batch_begins_a_stall_anew() -> None:
    """A pipeline that publishes is slow at the most."""
    moving = [_at(4 * n, lag=3, last_sequence=7 + n) for n in range(5)]
    assert ["pending"] * 5 == _words(_follow_all(_STALL, moving))


def test_a_batch_ends_a_stall_that_fired() -> None:
    """What comes after it is another alert, which must last again."""
    states = _follow_all(
        _STALL,
        [
            *(_at(0, lag=3), _at(5, lag=3), _at(6, lag=3, last_sequence=8)),
            *(_at(7, lag=3, last_sequence=8), _at(12, lag=3, last_sequence=8)),
        ],
    )
    assert ["pending", "firing", "quiet", "pending", "firing"] == _words(states)


@pytest.mark.parametrize("values", [{"lag": 0}, {"lag": 3, "paused_s": 1.0}])
def test_without_lag_or_while_paused_nothing_stalls(values: dict[str, object]) -> None:
    """Nobody expects a batch then."""
    states = _follow_all(_STALL, [_at(m, **values) for m in (0, 10, 20)])
    assert ["quiet"] * 3 == _words(states)


@pytest.mark.parametrize("first", ["pending", "firing"])
def test_what_cannot_be_known_changes_nothing(first: str) -> None:
    """An alert neither fires nor ends because Kafka does not answer."""
    minutes = 5 if first == "firing" else 1
    before = [_at(0, lag=3), _at(minutes, lag=3)]
    states = _follow_all(_STALL, [*before, _at(30, lag=None)])
    assert first == _words(states)[1]
    assert states[2] is states[1]


def test_lag_grows_as_long_as_it_is_not_below_where_it_began() -> None:
    """Being above the limit is not enough: a backlog that shrinks is worked off."""
    growing = [_at(m, lag=lag) for m, lag in ((0, 200), (1, 201), (2, 200), (3, 500))]
    assert ["pending", "pending", "firing", "firing"] == _words(
        _follow_all(_GROWTH, growing)
    )
    shrinking = [_at(m, lag=900 - m) for m in range(10)]
    assert ["pending"] * 10 == _words(_follow_all(_GROWTH, shrinking))


def test_growth_that_fired_ends_when_the_backlog_is_back_to_where_it_began() -> None:
    """Or below the limit, whichever comes first."""
    lags = [200, 300, 400, 250, 199, 190]
    states = _follow_all(_GROWTH, [_at(m, lag=lag) for m, lag in enumerate(lags)])
    assert ["pending", "pending", "firing", "firing", "quiet", "pending"] == _words(
        states
    )
    assert "quiet" == _words(_follow_all(_GROWTH, [_at(0, lag=100)]))[0]


@pytest.mark.parametrize(
    ("rule", "quiet", "holds", "unknown"),
    [
        (_OLD, {"freshness_s": 60.0}, {"freshness_s": 60.1}, {"freshness_s": None}),
        (
            DeadLetters(channels=(), when="dead_letters", above=0.01),
            {"dead_shares": {timedelta(minutes=15): 0.01}},
            {"dead_shares": {timedelta(minutes=15): 0.011}},
            {"dead_shares": {}},
        ),
        (
            InDoubt(channels=(), when="in_doubt", above=_MINUTE),
            {"in_doubt_s": 60.0},
            {"in_doubt_s": 61.0},
            None,
        ),
        (
            RetentionHeadroom(channels=(), when="retention_headroom", below=_MINUTE),
            {"headroom_s": 60.0},
            {"headroom_s": 59.0},
            {"headroom_s": None},
        ),
        (
            RetentionHeadroom(channels=(), when="retention_headroom", below=_MINUTE),
            {"headroom_s": math.inf},
            {"headroom_s": 0.0},
            {"headroom_s": None},
        ),
        (
            OverBudget(channels=(), when="over_budget", prices=_PRICES),
            {"usages": _used(3_600.0, read=0)},
            {"usages": _used(3_601.0, read=0)},
            {"usages": {}},
        ),
        (
            DriverGone(channels=(), when="driver_gone"),
            {"is_driver_gone": True, "paused_s": 3.0},
            {"is_driver_gone": True},
            None,
        ),
        (
            PausedTooLong(channels=(), when="paused", above=_MINUTE),
            {"paused_s": 60.0},
            {"paused_s": 61.0},
            None,
        ),
    ],
)
def test_each_condition_holds_beyond_its_threshold_only(
    rule: AlertRule,
    quiet: dict[str, object],
    holds: dict[str, object],
    unknown: dict[str, object] | None,
) -> None:
    """And says what it has found, without being asked to compute it again."""
    assert follow("r", rule, _at(0, **quiet), None) is None
    alert = follow("r", rule, _at(0, **holds), None)
    assert alert is not None
    assert _NOW == alert.fired_at, "without a time it fires at once"
    assert alert.told.endswith(".")
    assert follow("r", rule, _at(1, **quiet), alert) is None
    if unknown is not None:
        assert follow("r", rule, _at(1, **unknown), alert) is alert


def test_a_budget_is_passed_by_the_limit_that_is_used_most() -> None:
    """24 a day, and a million records at twice or five times the hour of CPU."""
    budget = Budget(per_day=20.0, per_million_events=4.0)
    prices = Prices(currency="EUR", vcpu_hour=1.0, budget=budget)
    rule = OverBudget(channels=(), when="over_budget", prices=prices)
    alert = follow("r", rule, _at(0, usages=_used(3_600.0, read=500_000)), None)
    assert alert is not None
    assert alert.value == pytest.approx(1.2)
    assert "a day takes 120% of its budget" in alert.told
    alert = follow("r", rule, _at(0, usages=_used(3_600.0, read=200_000)), None)
    assert alert is not None
    assert "a million records takes 125% of its budget" in alert.told


def test_a_clock_that_goes_back_delays_and_never_fires_early() -> None:
    """A database that was failed over to may be behind by a little."""
    states = _follow_all(_STALL, [_at(0, lag=3), _at(-1, lag=3), _at(3.9, lag=3)])
    assert ["pending"] * 3 == _words(states)
    assert states[1] is not None
    assert _NOW - _MINUTE == states[1].since


@dataclass
class _Book:
    """What the home database keeps, as values; ``deliver`` is who would be told."""

    alerts: dict[UUID, Alert] = field(default_factory=dict)
    delivered: list[tuple[str, str]] = field(default_factory=list)
    writes: int = 0

    def look(self, rules: dict[str, AlertRule], *seen: Observation) -> None:
        changes = find_changes(rules, seen, self.alerts, seen[0].observed_at)
        for alert, channels in changes.begun:
            self.writes += 1
            self.alerts[uuid4()] = alert
            self.delivered += [("firing", channel) for channel in channels]
        for alert_id, (alert, channels) in changes.changed.items():
            self.writes += 1
            self.alerts[alert_id] = alert
            self.delivered += [("firing", channel) for channel in channels]
        for alert_id in changes.ended:
            self.writes += 1
            ended = self.alerts.pop(alert_id)
            if ended.fired_at is not None:
                self.delivered.append(("resolved", ended.rule))


def test_whom_it_concerns_is_told_once_when_it_fires_and_once_when_it_ends() -> None:
    """However often somebody looks in between."""
    book = _Book()
    rules: dict[str, AlertRule] = {"stalled": _STALL}
    for minutes in range(20):
        book.look(rules, _at(minutes, lag=3))
    assert [("firing", "ops")] == book.delivered
    book.look(rules, _at(20, lag=0))
    assert [("firing", "ops"), ("resolved", "stalled")] == book.delivered
    assert {} == book.alerts


def test_what_never_fired_is_forgotten_without_a_word() -> None:
    """A pending alert is nobody's news."""
    book = _Book()
    book.look({"stalled": _STALL}, _at(0, lag=3))
    book.look({"stalled": _STALL}, _at(1, lag=0))
    assert ([], {}) == (book.delivered, book.alerts)


def test_an_alert_ends_with_its_rule_or_its_pattern() -> None:
    """Nobody would ever end it otherwise."""
    other = replace(_OLD, pipelines="pay*")
    for rules in ({}, {"old": other}):
        book = _Book()
        book.look({"old": _OLD}, _at(0, freshness_s=90.0))
        assert [("firing", "ops")] == book.delivered
        book.look(dict(rules), _at(1, freshness_s=90.0))
        assert ("resolved", "old") == book.delivered[-1]


def test_pipelines_and_rules_do_not_mix() -> None:
    """Each pair has an alert of its own."""
    book = _Book()
    rules: dict[str, AlertRule] = {
        "old": _OLD,
        "older": replace(_OLD, severity=Severity.PAGE),
    }
    one = _at(0, freshness_s=90.0)
    book.look(rules, one, replace(one, pipeline="payments", freshness_s=1.0))
    assert {("orders", "old"), ("orders", "older")} == {
        alert.key for alert in book.alerts.values()
    }


def test_a_look_that_finds_nothing_new_writes_nothing() -> None:
    """The wording is written anew now and then, not at each look."""
    book = _Book()
    for seconds in (0, 10, 20, 30):
        book.look({"old": _OLD}, _at(seconds / 60, freshness_s=90.0 + seconds))
    assert 1 == book.writes
    book.look({"old": _OLD}, _at(REFRESH / _MINUTE, freshness_s=150.0))
    assert 2 == book.writes


_SEEN = st.builds(
    lambda lag, moved, paused: (lag, moved, paused),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(_SEEN, max_size=40))
def test_every_resolved_follows_a_firing_of_its_own(
    seen: list[tuple[int | None, bool, bool]],
) -> None:
    """Whatever is observed, news come in turn: firing, resolved, firing."""
    book = _Book()
    sequence = 7
    for minutes, (lag, moved, is_paused) in enumerate(seen):
        sequence += moved
        book.look(
            {"stalled": _STALL},
            _at(
                minutes,
                lag=lag,
                last_sequence=sequence,
                paused_s=1.0 if is_paused else None,
            ),
        )
    words = [word for word, _ in book.delivered]
    assert words == ["firing", "resolved"] * (len(words) // 2) + ["firing"] * (
        len(words) % 2
    )


def test_a_pipeline_that_has_read_all_is_told_so() -> None:
    """No span of time is without end."""
    rule = RetentionHeadroom(channels=(), when="retention_headroom", below=_MINUTE)
    judged = rule.judge(_at(0, headroom_s=math.inf), None)
    assert judged is not None
    assert judged.told.startswith("Kafka deletes no unread record;")
