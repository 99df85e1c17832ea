"""What ``doctor`` finds out about a file of alert rules; it tells nobody anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from services.alerts.channel import check_reachable
from services.alerts.channels import make_channels
from services.alerts.rules_file import RulesFile, read_rules
from services.cli.check import Check
from sinks.postgres.audit import read_overview
from sinks.postgres.server.connection import connect
from sinks.protocol.errors import TallyweirError


def check_rules(path: Path, home_dsn: str | None) -> Iterator[Check]:
    """Look at the file, at who is to be told, and at what the rules are about.

    Args:
        path: Of the rules.
        home_dsn: To look for pipelines in; None for no home.
    """
    try:
        asked = read_rules(path)
        channels = make_channels(asked.channels, os.environ)
    except TallyweirError as error:
        yield Check(name="alert rules", ok=False, saw=error.saw, fix=error.fix)
        return
    saw = f"{path}: {len(asked.rules)} rules, {len(channels)} channels"
    yield Check(name="alert rules", ok=True, saw=saw)
    for name, channel in channels.items():
        try:
            check_reachable(name, channel.address)
        except TallyweirError as error:
            # It may be reached from where the service runs, or later.
            yield Check(name="alert channel", ok=True, saw=error.saw, fix=error.fix)
        else:
            yield Check(name="alert channel", ok=True, saw=f"{name} can be connected")
    if home_dsn is not None:
        yield from _check_pipelines(asked, home_dsn)


def _check_pipelines(asked: RulesFile, home_dsn: str) -> Iterator[Check]:
    try:
        with connect(home_dsn, application_name="tallyweir doctor") as home:
            known = [one.pipeline for one in read_overview(home)]
    except TallyweirError as error:
        # What is wrong with the home, other checks say.
        yield Check(name="alert pipelines", ok=True, saw=error.saw, fix=error.fix)
        return
    for name, rule in asked.rules.items():
        if not any(map(rule.is_about, known)):
            yield Check(
                name="alert pipelines",
                ok=True,
                saw=f"the rule {name} is about {rule.pipelines!r}, and the home has "
                f"only {', '.join(known) or 'no pipeline'}",
                fix="correct the rule's pipelines, or start the pipeline",
            )
