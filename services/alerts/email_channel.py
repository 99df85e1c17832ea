"""Sends notifications by e-mail."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import format_datetime

from tallyweir.services.alerts.channel import (
    STEP_TIMEOUT_S,
    TIMEOUT_S,
    headline,
    refused,
    unreachable,
)
from tallyweir.sinks.postgres.alerting.alert import Notification


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailChannel:
    """A mail server, and the addresses that get mail.

    Attributes:
        name: Name of the channel.
        server: The mail server's host.
        port: Its port.
        starttls: Send nothing, and no password, before the connection is encrypted and
            the server's certificate is verified.
        sender: Address of the sender.
        to: Addresses of the receivers.
        user: User to log in as; None without login.
        password: Password of the user.
    """

    name: str
    server: str
    port: int
    starttls: bool
    sender: str
    to: tuple[str, ...]
    user: str | None
    password: str | None = field(repr=False)

    @property
    def again_s(self) -> float | None:
        return None

    @property
    def address(self) -> tuple[str, int]:
        return self.server, self.port

    def tell(self, told: Notification, installation: str) -> None:
        message = self._write(told, installation)
        client = smtplib.SMTP(timeout=STEP_TIMEOUT_S)
        deadline = threading.Timer(TIMEOUT_S, _cut, [client])
        deadline.daemon = True
        deadline.start()
        try:
            # STARTTLS checks the certificate against this name.
            client._host = self.server  # type: ignore[attr-defined]  # noqa: SLF001
            client.connect(self.server, self.port)
            if self.starttls:
                client.starttls(context=ssl.create_default_context())
            if self.user is not None and self.password is not None:
                client.login(self.user, self.password)
            client.send_message(message)
            with suppress(OSError, smtplib.SMTPException):
                # The server has taken the mail; an error of QUIT does not matter.
                client.quit()
        except (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError) as error:
            raise unreachable(self.name, type(error).__name__) from None
        except smtplib.SMTPException as error:
            code = getattr(error, "smtp_code", None)
            what = f"{type(error).__name__}{f' {code}' if code else ''}"
            raise refused(self.name, what) from None
        except OSError as error:
            raise unreachable(self.name, type(error).__name__) from None
        finally:
            deadline.cancel()
            client.close()

    def _write(self, told: Notification, installation: str) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = headline(told)
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
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


def _cut(client: smtplib.SMTP) -> None:
    with suppress(OSError):
        if client.sock is not None:
            client.sock.shutdown(socket.SHUT_RDWR)
