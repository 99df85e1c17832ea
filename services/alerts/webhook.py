"""Sends notifications by an HTTP POST of JSON, signed if there is a secret."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from tallyweir.services.alerts.channel import encode, notification_json
from tallyweir.services.alerts.http_post import address_of, post
from tallyweir.sinks.postgres.alerting.alert import Notification

SIGNATURE_HEADER = "x-tallyweir-signature-256"
ID_HEADER = "x-tallyweir-notification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that takes notifications.

    Attributes:
        name: Name of the channel.
        url: Address to post to.
        secret: Key of the signature; None for unsigned posts.
    """

    name: str
    url: str = field(repr=False)
    secret: str | None = field(repr=False)

    @property
    def again_s(self) -> float | None:
        return None

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
