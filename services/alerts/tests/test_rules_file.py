"""A rules file is taken whole or refused whole, and every problem names its line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.services.alerts.alert_rule import Stall
from tallyweir.services.alerts.channels import EmailChannel, Webhook, make_channels
from tallyweir.services.alerts.rules_file import read_rules
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.postgres.records.alert_book import Severity
from tallyweir.sinks.protocol.errors import ConfigurationError

_GOOD = """\
channels:
  ops: {kind: webhook, url: "https://example.org/hook", secret_from: OPS_SECRET}
  mail: {kind: email, server: localhost, from: a@example.org, to: [b@example.org],
         user: a, password_from: MAIL_PASSWORD}
rules:
  stalled: {when: stall, for: 2 minutes, severity: page, channels: [ops, mail]}
"""


def _read(tmp_path: Path, text: str) -> object:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return read_rules(path)


def test_a_good_file_says_what_it_means(tmp_path: Path) -> None:
    """Durations as everywhere, defaults for what is left out."""
    path = tmp_path / "rules.yaml"
    path.write_text(_GOOD)
    found = read_rules(path)
    rule = found.rules["stalled"]
    assert isinstance(rule, Stall)
    assert (timedelta(minutes=2), Severity.PAGE, ("ops", "mail"), "*") == (
        *(rule.lasting, rule.severity, rule.channels),
        rule.pipelines,
    )


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("for: 2", "fro: 2", "6: Unknown key 'fro'. Write for."),
        ("stall,", "stal,", "rules.stalled.when must be one of freshness, lag_growth"),
        ("2 minutes", "2 miles", "is not a unit of fixed length; write one such as"),
        ("2 minutes", "2", "a duration is written such as"),
        ("2 minutes", "0 s", "rules.stalled.for: Input should be greater"),
        ("severity: page", "severity: loud", "Input should be 'page' or 'warning'"),
        ("[ops, mail]", "[opps]", "There is no channel 'opps'. Write ops."),
        ("[ops, mail]", "[ops, ops]", "The rule names a channel twice."),
        (", channels: [ops, mail]", "", "rules.stalled.channels is missing."),
        ("kind: webhook", "kind: hook", "channels.ops.kind must be one of webhook"),
        (' url: "https://example.org/hook",', "", "either url or url_from"),
        ("https://", "ftp://", "it must look like https"),
        ("https://", "https://u:hidden@", "it must look like https"),
        ("user: a, ", "", "user and password_from need each other"),
        ("user: a,", "user: a, starttls: false,", "a password would be sent"),
        ("rules:", "channels: {}\nrules:", "5: The key 'channels' occurs twice."),
        ("OPS_SECRET", "hidden-secret", "String should match pattern"),
        ("{when: stall", "&a {when: stall", None),
    ],
)
def test_every_mistake_is_told(
    tmp_path: Path, wrong: str, right: str, told: str | None
) -> None:
    """And no value is shown: in a wrong place there may be a secret."""
    assert wrong in _GOOD
    text = _GOOD.replace(wrong, right)
    if told is None:
        _read(tmp_path, text)
        return
    with pytest.raises(ConfigurationError, match="ALERT_RULES_INVALID") as raised:
        _read(tmp_path, text)
    assert told in raised.value.saw
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("prices", "told"),
    [
        (None, "rules.cost.prices: "),
        ("currency: EUR\nvcpu_hour: 1\n", "prices.yaml has no budget"),
        ("currency: EUR\nvcpu_hour: x\n", "vcpu_hour: Input should be a valid number"),
    ],
)
def test_a_budget_that_is_none_is_told(
    tmp_path: Path, prices: str | None, told: str
) -> None:
    """The prices are read with the rules, so a rule never looks at nothing."""
    if prices is not None:
        (tmp_path / "prices.yaml").write_text(prices)
    rule = "{when: over_budget, prices: prices.yaml, channels: []}"
    with pytest.raises(ConfigurationError, match="ALERT_RULES_INVALID") as raised:
        _read(tmp_path, f"rules:\n  cost: {rule}\n")
    assert told in raised.value.saw
    assert ":2: " in raised.value.saw


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """By line."""
    text = _GOOD.replace("for: 2", "fro: 2").replace("kind: webhook", "kind: hook")
    with pytest.raises(ConfigurationError) as raised:
        _read(tmp_path, "evry: 1 s\n" + text)
    lines = raised.value.saw.splitlines()
    assert [
        f"rules.yaml:{n}:" in line for n, line in zip((1, 3, 7), lines, strict=True)
    ]


@pytest.mark.parametrize("text", ["", "- a", "a: [", "a: &x 1\nb: *x", "\xff"])
def test_what_is_no_plain_mapping_is_unreadable(tmp_path: Path, text: str) -> None:
    """Nothing in it can be trusted."""
    path = tmp_path / "rules.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match="ALERT_RULES_UNREADABLE"):
        read_rules(path)
    with pytest.raises(ConfigurationError, match="ALERT_RULES_UNREADABLE"):
        read_rules(tmp_path / "missing.yaml")


def test_secrets_come_from_files_or_the_environment_and_are_not_shown(
    tmp_path: Path,
) -> None:
    """Neither by the channels nor by the errors."""
    path = tmp_path / "rules.yaml"
    path.write_text(_GOOD)
    asked = read_rules(path)
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    channels = make_channels(
        asked.channels,
        {"OPS_SECRET_FILE": str(secret), "MAIL_PASSWORD": "whisper"},
    )
    ops, mail = channels["ops"], channels["mail"]
    assert isinstance(ops, Webhook)
    assert isinstance(mail, EmailChannel)
    assert ("hush", "whisper") == (ops.secret, mail.password)
    assert not {"hush", "whisper"} & set(repr(channels).replace("'", " ").split())
    with pytest.raises(ConfigurationError, match="SETTING_MISSING"):
        make_channels(asked.channels, {"OPS_SECRET": "hush"})


def test_an_address_that_is_no_address_is_told_without_it(tmp_path: Path) -> None:
    """Webhooks of chat services are secrets as a whole."""
    path = tmp_path / "rules.yaml"
    path.write_text("channels: {ops: {kind: webhook, url_from: URL}}\nrules: {}\n")
    asked = read_rules(path)
    with pytest.raises(ConfigurationError, match="ALERT_URL_INVALID") as raised:
        make_channels(asked.channels, {"URL": "hush.example.org/hook"})
    assert "hush" not in str(raised.value)


def test_the_example_is_a_good_file() -> None:
    """The one that docs and compose use, with every condition in it."""
    found = read_rules(ROOT / "docker" / "observability" / "alerts.yaml")
    conditions = {type(rule) for rule in found.rules.values()}
    assert 9 == len(conditions)
