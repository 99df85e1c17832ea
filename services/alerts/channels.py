"""Where notifications go, and how: webhooks, mail, Prometheus' Alertmanager.

A channel's address may itself be a secret, so errors and logs show only the channel's
name.

Alertmanager forgets an alert that is not repeated, so its channel sends each one again
well before its end. It identifies an alert by its labels, so a repeat is the same
alert.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import smtplib
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from typing import ClassVar
from urllib.parse import urlsplit

from tallyweir.services.alerts.rules_file import (
    AlertmanagerSection,
    AnyChannel,
    EmailSection,
    WebhookSection,
    checked_url,
)
from tallyweir.sinks.postgres.records.alert_book import About, Notification
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.settings import FILE_SUFFIX, read_setting

#: Limit for making a connection, and between two bytes of an answer.
STEP_TIMEOUT_S = 5.0
#: Limit for a whole notification.
TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel(ABC):
    """Delivers notifications.

    Attributes:
        again_s: Seconds after which it needs a repeat while an alert lasts; None if
            never.
        name: Name of the channel.
    """

    again_s: ClassVar[float | None] = None

    name: str

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port that it connects to; may be a secret."""

    @abstractmethod
    def tell(self, told: Notification, installation: str) -> None:
        """Deliver a notification within ``TIMEOUT_S`` seconds.

        Raises:
            RetryableError: ``ALERT_CHANNEL_UNREACHABLE`` or ``ALERT_CHANNEL_REFUSED``.

        Crash:
            The channel may have taken the notification although the service does not
            know it; the service sends it again under the same ID.
        """


def check_reachable(name: str, address: tuple[str, int]) -> None:
    """Connect to a channel's address, and send nothing.

    Raises:
        RetryableError: ``ALERT_CHANNEL_UNREACHABLE``.
    """
    try:
        socket.create_connection(address, timeout=STEP_TIMEOUT_S).close()
    except OSError as error:
        raise unreachable(name, type(error).__name__) from None


def notification_json(told: Notification, installation: str) -> dict[str, object]:
    """Return a notification as it is sent; docs/alerts.md has it as a table."""
    return {
        "id": told.id,
        "about": told.about.value,
        "alert": str(told.alert_id),
        "installation": installation,
        "rule": told.rule,
        "pipeline": told.pipeline,
        "severity": told.severity.value,
        "told": told.told,
        "value": told.value,
        "since": told.since.isoformat(),
        "fired_at": told.fired_at.isoformat(),
        "resolved_at": told.resolved_at and told.resolved_at.isoformat(),
        "sent_at": told.now.isoformat(),
    }


def headline(told: Notification) -> str:
    """Return one line that says what it is about."""
    word = "RESOLVED" if told.about is About.RESOLVED else told.severity.upper()
    return f"[{word}] {told.pipeline}: {told.rule}"


def encode(value: object) -> bytes:
    """Encode as JSON; an infinite headroom, which JSON lacks, never fires."""
    return json.dumps(value, allow_nan=False).encode()


def unreachable(channel: str, what: str) -> RetryableError:
    """Return the error for an address that does not answer in time."""
    return RetryableError(
        "ALERT_CHANNEL_UNREACHABLE",
        saw=f"Channel {channel} cannot be notified: {what}.",
        why="People who rely on it do not learn that an alert fires or has ended.",
        fix="Check the address in the rules file, and that this host can reach it. The "
        "service tries again, at least every five minutes.",
    )


def refused(channel: str, what: str) -> RetryableError:
    """Return the error for a channel that refuses a notification."""
    return RetryableError(
        "ALERT_CHANNEL_REFUSED",
        saw=f"Channel {channel} refused a notification: {what}.",
        why="People who rely on it do not learn that an alert fires or has ended.",
        fix="Check the channel's entry in the rules file, and its secret or password. "
        "The service tries again, at least every five minutes.",
    )


@contextmanager
def _in_time(find_socket: Callable[[], socket.socket | None]) -> Iterator[None]:
    """End the block's connection when the time for a whole notification is over.

    A server that sends a byte now and then never exceeds the limit of a single step.
    """

    def cut() -> None:
        connected = find_socket()
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    deadline = threading.Timer(TIMEOUT_S, cut)
    deadline.daemon = True
    deadline.start()
    try:
        yield
    finally:
        deadline.cancel()


_OK_STATUS = range(200, 300)


def post(channel: str, url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send JSON, and require that it was taken: an answer of 200 to 299.

    It follows no redirect: the body goes to the address that the operator named, or
    nowhere.

    Args:
        channel: Name of the channel, for errors.
        url: An ``http`` or ``https`` address that was checked before.
        body: The JSON to send.
        headers: Headers in addition to those of every request.

    Raises:
        RetryableError: ``ALERT_CHANNEL_UNREACHABLE`` or ``ALERT_CHANNEL_REFUSED``.
    """
    parts = urlsplit(url)
    assert parts.hostname, "the rules file was checked"
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    kind = (
        http.client.HTTPSConnection
        if parts.scheme == "https"
        else http.client.HTTPConnection
    )
    connection = kind(parts.hostname, parts.port, timeout=STEP_TIMEOUT_S)
    all_headers = {"content-type": "application/json", **headers}
    try:
        with _in_time(lambda: connection.sock), closing(connection):
            connection.request("POST", path, body, all_headers)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        # The error's text may quote the address.
        raise unreachable(channel, type(error).__name__) from None
    if status not in _OK_STATUS:
        raise refused(channel, f"it answered {status}")


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of an address that was checked before."""
    parts = urlsplit(url)
    assert parts.hostname, "the rules file was checked"
    is_secure = parts.scheme == "https"
    return parts.hostname, parts.port or (
        http.client.HTTPS_PORT if is_secure else http.client.HTTP_PORT
    )


SIGNATURE_HEADER = "x-tallyweir-signature-256"
ID_HEADER = "x-tallyweir-notification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Channel):
    """An address that takes notifications.

    Attributes:
        url: Address to post to.
        secret: Key of the signature; None for unsigned posts.
    """

    url: str = field(repr=False)
    secret: str | None = field(repr=False)

    @property
    def address(self) -> tuple[str, int]:
        return address_of(self.url)

    def tell(self, told: Notification, installation: str) -> None:
        body = encode(notification_json(told, installation))
        headers = {ID_HEADER: told.id}
        if self.secret is not None:
            headers[SIGNATURE_HEADER] = sign(self.secret, body)
        post(self.name, self.url, body, headers)


def sign(secret: str, body: bytes) -> str:
    """Return a signature that proves that an owner of the secret has sent this body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


_ALERTS_PATH = "/api/v2/alerts"
_ALERTMANAGER_AGAIN_S = 60.0
#: Three repeats may fail before Alertmanager takes an alert for resolved.
_ALERTMANAGER_LIVES = timedelta(seconds=4 * _ALERTMANAGER_AGAIN_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alertmanager(Channel):
    """An Alertmanager.

    Attributes:
        url: Its address, without ``/api/v2/alerts``.
    """

    again_s = _ALERTMANAGER_AGAIN_S

    url: str = field(repr=False)

    @property
    def address(self) -> tuple[str, int]:
        return address_of(self.url)

    def tell(self, told: Notification, installation: str) -> None:
        alert = {
            "labels": {
                "alertname": told.rule,
                "pipeline": told.pipeline,
                "severity": told.severity.value,
                "installation": installation,
            },
            "annotations": {
                "summary": f"{told.pipeline}: {told.told}",
                "alert": str(told.alert_id),
            },
            "startsAt": told.since.isoformat(),
            "endsAt": (told.resolved_at or told.now + _ALERTMANAGER_LIVES).isoformat(),
        }
        post(self.name, self.url.rstrip("/") + _ALERTS_PATH, encode([alert]), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailChannel(Channel):
    """A mail server, and the addresses that get mail.

    Attributes:
        section: The channel in the rules file.
        password: Password of the user.
    """

    section: EmailSection
    password: str | None = field(repr=False)

    @property
    def address(self) -> tuple[str, int]:
        return self.section.server, self.section.port

    def tell(self, told: Notification, installation: str) -> None:
        message = self._write(told, installation)
        client = smtplib.SMTP(timeout=STEP_TIMEOUT_S)
        try:
            with closing(client), _in_time(lambda: client.sock):
                self._send(client, message)
        except (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError) as error:
            raise unreachable(self.name, type(error).__name__) from None
        except smtplib.SMTPException as error:
            code = getattr(error, "smtp_code", None)
            what = f"{type(error).__name__}{f' {code}' if code else ''}"
            raise refused(self.name, what) from None
        except OSError as error:
            raise unreachable(self.name, type(error).__name__) from None

    def _send(self, client: smtplib.SMTP, message: EmailMessage) -> None:
        user, password = self.section.user, self.password
        # STARTTLS checks the certificate against this name.
        client._host = self.section.server  # type: ignore[attr-defined]  # noqa: SLF001
        client.connect(*self.address)
        if self.section.starttls:
            # Send nothing, and no password, before the connection is encrypted and the
            # server's certificate is verified.
            client.starttls(context=ssl.create_default_context())
        if user is not None and password is not None:
            client.login(user, password)
        client.send_message(message)
        with suppress(OSError, smtplib.SMTPException):
            # The server has taken the mail; an error of QUIT does not matter.
            client.quit()

    def _write(self, told: Notification, installation: str) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = headline(told)
        message["From"] = self.section.sender
        message["To"] = ", ".join(self.section.to)
        message["Date"] = format_datetime(told.now)
        # The ID is the same at each try, so that a mailbox can drop a repeat. Both
        # mails of an alert form one conversation.
        message["Message-ID"] = f"<{told.about.value}.{told.alert_id}@tallyweir>"
        message["References"] = f"<firing.{told.alert_id}@tallyweir>"
        lines = [
            told.told,
            "",
            f"Pipeline:     {told.pipeline}",
            f"Rule:         {told.rule} ({told.severity.value})",
            f"Since:        {told.since:%Y-%m-%d %H:%M:%S} UTC",
            f"Fired:        {told.fired_at:%Y-%m-%d %H:%M:%S} UTC",
        ]
        if told.resolved_at is not None:
            lines.append(f"Resolved:     {told.resolved_at:%Y-%m-%d %H:%M:%S} UTC")
        lines.append(f"Installation: {installation}")
        lines.append(f"Notification: {told.id}")
        message.set_content("\n".join(lines) + "\n")
        return message


def make_channels(
    sections: Mapping[str, AnyChannel], environment: Mapping[str, str]
) -> dict[str, Channel]:
    """Make each channel with its secrets.

    Raises:
        ConfigurationError: ``SETTING_MISSING``, ``ALERT_URL_INVALID``, or as
            ``read_setting``. No error shows any part of a secret.
    """
    return {
        name: _make_channel(name, one, environment) for name, one in sections.items()
    }


def _make_channel(
    name: str, section: AnyChannel, environment: Mapping[str, str]
) -> Channel:
    match section:
        case WebhookSection():
            return Webhook(
                name=name,
                url=section.url or _read_url(name, section.url_from, environment),
                secret=section.secret_from
                and _read_secret(name, section.secret_from, environment),
            )
        case EmailSection():
            return EmailChannel(
                name=name,
                section=section,
                password=section.password_from
                and _read_secret(name, section.password_from, environment),
            )
        case AlertmanagerSection():
            return Alertmanager(name=name, url=section.url)


def _read_url(name: str, setting: str | None, environment: Mapping[str, str]) -> str:
    assert setting is not None, "the rules file was checked"
    try:
        return checked_url(_read_secret(name, setting, environment))
    except ValueError as error:
        raise ConfigurationError(
            "ALERT_URL_INVALID",
            saw=f"{setting}, the address of channel {name}, is not a URL: {error}.",
            why="The channel could not send an alert to anyone.",
            fix=f"Correct {setting}, or the file that {setting}{FILE_SUFFIX} names.",
        ) from None


def _read_secret(name: str, setting: str, environment: Mapping[str, str]) -> str:
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
