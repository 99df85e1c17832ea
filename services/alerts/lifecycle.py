"""Computes an alert's next state from an observation; pure, by the database's clock.

::

    quiet --holds--> pending --held long enough--> firing --holds no more--> resolved
               ^        |
               +--------+  holds no more, or begins again

An unknown value changes nothing: an alert neither fires nor ends because Kafka does not
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from tallyweir.services.alerts.alert_rule import AlertRule, Observation
from tallyweir.sinks.postgres.records.alert_book import Alert

#: How old the text of an alert may be before it is written again although nothing else
#: has changed: not every look is worth a write.
REFRESH = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one look at all pipelines, as ``AlertBook.record`` takes them."""

    begun: Sequence[tuple[Alert, Sequence[str]]]
    changed: Mapping[UUID, tuple[Alert, Sequence[str]]]
    ended: Mapping[UUID, datetime]


def follow(
    name: str, rule: AlertRule, seen: Observation, former: Alert | None
) -> Alert | None:
    """Return an alert's next state; None for no alert.

    Args:
        name: Name of the rule.
        rule: The rule to follow.
        seen: The observation.
        former: The alert of this rule and pipeline that lasts; None without one.
    """
    judged = rule.judge(seen, former.mark if former else None)
    if judged is None:
        return former
    if not judged.holds:
        return None
    if former is not None and former.fired_at is not None and judged.is_anew:
        # The condition that it reported is over. The one that begins now is another
        # alert, which the next look begins.
        return None
    now = seen.observed_at
    # The clock of a database that was failed over to may be behind.
    since = now if former is None or judged.is_anew else min(former.since, now)
    fired_at = former.fired_at if former else None
    if fired_at is None and now - since >= rule.lasting:
        fired_at = now
    return Alert(
        rule=name,
        pipeline=seen.pipeline,
        severity=rule.severity,
        since=since,
        mark=judged.mark,
        value=judged.value,
        told=judged.told,
        observed_at=now,
        fired_at=fired_at,
    )


def find_changes(
    rules: Mapping[str, AlertRule],
    observations: Iterable[Observation],
    lasting: Mapping[UUID, Alert],
    now: datetime,
) -> Changes:
    """Follow every rule on every pipeline that it covers.

    An alert ends when its rule is gone or no longer covers its pipeline.

    Args:
        rules: Rules by name.
        observations: Observations of all pipelines.
        lasting: The alerts that last, by id.
        now: The database's clock.
    """
    ids = {alert.key: alert_id for alert_id, alert in lasting.items()}
    begun: list[tuple[Alert, Sequence[str]]] = []
    changed: dict[UUID, tuple[Alert, Sequence[str]]] = {}
    looked_at: set[UUID] = set()
    ended: dict[UUID, datetime] = {}
    for seen in observations:
        for name, rule in rules.items():
            if not rule.is_about(seen.pipeline):
                continue
            alert_id = ids.get((seen.pipeline, name))
            former = lasting[alert_id] if alert_id is not None else None
            following = follow(name, rule, seen, former)
            if alert_id is None or former is None:
                if following is not None:
                    begun.append((following, _news(rule, None, following)))
                continue
            looked_at.add(alert_id)
            if following is None:
                ended[alert_id] = seen.observed_at
            elif _is_worth_writing(former, following):
                changed[alert_id] = (following, _news(rule, former, following))
    ended |= {gone: now for gone in lasting if gone not in looked_at}
    return Changes(begun=begun, changed=changed, ended=ended)


def _news(rule: AlertRule, former: Alert | None, following: Alert) -> Sequence[str]:
    """Return the channels to tell that an alert has begun to fire."""
    was_firing = former is not None and former.fired_at is not None
    return () if following.fired_at is None or was_firing else rule.channels


def _is_worth_writing(former: Alert, following: Alert) -> bool:
    if following is former:
        return False
    as_it_was = replace(
        following,
        value=former.value,
        told=former.told,
        observed_at=former.observed_at,
    )
    is_old = following.observed_at - former.observed_at >= REFRESH
    return as_it_was != former or (is_old and following != former)
