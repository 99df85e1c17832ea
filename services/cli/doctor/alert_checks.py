"""The checks of ``doctor`` on a file of alert rules; they send no notification."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tallyweir.services.alerts.channel import check_reachable
from tallyweir.services.alerts.channels import make_channels
from tallyweir.services.alerts.rules_file import RulesFile, read_rules
from tallyweir.services.cli.doctor.check import Check
from tallyweir.sinks.postgres.audit import read_overview
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import TallyweirError


def check_rules(path: Path, home_dsn: str | None) -> Iterator[Check]:
    """Check the file, its channels, and the pipelines that the rules name.

    Args:
        path: Path of the rules file.
        home_dsn: Connection string of the home that has the pipelines; None for no
            home.
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
            # The host of the service may reach it, or this host may later.
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
        # Other checks report problems of the home.
        yield Check(name="alert pipelines", ok=True, saw=error.saw, fix=error.fix)
        return
    for name, rule in asked.rules.items():
        if not any(map(rule.is_about, known)):
            yield Check(
                name="alert pipelines",
                ok=True,
                saw=f"the rule {name} names {rule.pipelines!r}, but the home has "
                f"only {', '.join(known) or 'no pipeline'}",
                fix="correct the rule's pipelines, or start the pipeline",
            )
