"""Makes channels from the rules file and the secrets in the environment."""

from __future__ import annotations

from collections.abc import Mapping

from tallyweir.services.alerts.alertmanager import Alertmanager
from tallyweir.services.alerts.channel import Channel
from tallyweir.services.alerts.email_channel import EmailChannel
from tallyweir.services.alerts.rules_file import (
    AlertmanagerSection,
    AnyChannel,
    EmailSection,
    WebhookSection,
    checked_url,
)
from tallyweir.services.alerts.webhook import Webhook
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import FILE_SUFFIX, read_setting


def make_channels(
    sections: Mapping[str, AnyChannel], environment: Mapping[str, str]
) -> dict[str, Channel]:
    """Make each channel with its secrets.

    Raises:
        ConfigurationError: ``SETTING_MISSING``, ``ALERT_URL_INVALID``, or as
            ``read_setting``. No error shows any part of a secret.
    """
    return {name: _make(name, one, environment) for name, one in sections.items()}


def _make(name: str, section: AnyChannel, environment: Mapping[str, str]) -> Channel:
    match section:
        case WebhookSection():
            return Webhook(
                name=name,
                url=section.url or _read_url(name, section.url_from, environment),
                secret=section.secret_from
                and _read(name, section.secret_from, environment),
            )
        case EmailSection():
            return EmailChannel(
                name=name,
                server=section.server,
                port=section.port,
                starttls=section.starttls,
                sender=section.sender,
                to=section.to,
                user=section.user,
                password=section.password_from
                and _read(name, section.password_from, environment),
            )
        case AlertmanagerSection():
            return Alertmanager(name=name, url=section.url)


def _read_url(name: str, setting: str | None, environment: Mapping[str, str]) -> str:
    assert setting is not None, "the rules file was checked"
    try:
        return checked_url(_read(name, setting, environment))
    except ValueError as error:
        raise ConfigurationError(
            "ALERT_URL_INVALID",
            saw=f"{setting}, the address of channel {name}, is not a URL: {error}.",
            why="The channel could not send an alert to anyone.",
            fix=f"Correct {setting}, or the file that {setting}{FILE_SUFFIX} names.",
        ) from None


def _read(name: str, setting: str, environment: Mapping[str, str]) -> str:
    value = read_setting(environment, setting)
    if not value:
        raise ConfigurationError(
            "SETTING_MISSING",
            saw=f"Neither {setting} nor {setting}{FILE_SUFFIX} is set, or it is empty; "
            f"the rules file says that it holds a secret of channel {name}.",
            why="The channel needs its secret, and a rules file never holds secrets.",
            fix=f"Let {setting}{FILE_SUFFIX} name a file that holds it.",
        )
    return value
