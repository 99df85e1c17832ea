"""Lets requests with a valid token through, and slows down guessing.

A token travels in a header that no other site can make a browser send, so another site
cannot forge an act. The guard still refuses a request that names another origin.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import Request

from tallyweir.services.monitor.tokens import PageToken, Role, TokenFile
from tallyweir.services.process.hashed_secrets import utc_now
from tallyweir.services.process.refusals import RefusedError

#: Wrong tokens from one address in ``_WINDOW_S``; more are answered 429. A valid token
#: always passes, so a guesser cannot lock out users of the same address.
FAILURES_MAX = 10
_WINDOW_S = 60.0
#: Most addresses that the guard remembers: a stranger must not fill the memory.
_ADDRESSES_MAX = 1_000
#: Our page sends this header with each request that changes something. A form cannot
#: send it.
ACT_HEADER = "x-tallyweir-act"


class Guard:
    """Decides which token may do what.

    Args:
        tokens: The tokens file; None without tokens.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """

    def __init__(self, tokens: Path | None) -> None:
        self._tokens = TokenFile(tokens)
        self._failures: dict[str, deque[float]] = {}

    @property
    def has_tokens(self) -> bool:
        """Whether a token can allow more than reading."""
        return self._tokens.is_given

    def require(self, request: Request, role: Role) -> PageToken:
        """Return the token of a request.

        Raises:
            RefusedError: ``UNAUTHENTICATED``, ``ROLE_MISSING``, or
                ``TOO_MANY_FAILURES``.
        """
        shown = request.headers.get("authorization")
        try:
            token = self._tokens.authenticate(shown, utc_now())
        except RefusedError:
            # A request without a token is no guess: any page can make a browser send
            # one.
            if shown is not None:
                self._slow_down(request.client.host if request.client else "")
            raise
        if not token.role.may(role):
            raise RefusedError(
                "ROLE_MISSING",
                status=403,
                saw=f"The token of {token.name} is a {token.role.value}'s.",
                why=f"This needs the role {role.value}.",
                fix="Use a token of that role.",
            )
        return token

    def viewer(self, request: Request) -> PageToken | None:
        """Return a token that may see records; None if the request has no token.

        Raises:
            RefusedError: As ``require``, if the request has a token.
        """
        if "authorization" not in request.headers:
            return None
        return self.require(request, Role.VIEWER)

    def require_act(self, request: Request, role: Role) -> PageToken:
        """Return the token of a request that changes something, if its role may.

        Raises:
            RefusedError: As ``require``, or ``ORIGIN_FOREIGN``.
        """
        _check_origin(request)
        return self.require(request, role)

    def _slow_down(self, address: str) -> None:
        self._check_patience(address)
        self._note_failure(address)

    def _check_patience(self, address: str) -> None:
        failures = self._failures.get(address, ())
        recent = [at for at in failures if time.monotonic() - at < _WINDOW_S]
        if len(recent) >= FAILURES_MAX:
            raise RefusedError(
                "TOO_MANY_FAILURES",
                status=429,
                saw=f"{FAILURES_MAX} wrong tokens came from this address in "
                f"{_WINDOW_S:.0f} s.",
                why="Someone may be guessing tokens.",
                fix=f"Wait {_WINDOW_S:.0f} s.",
                retry_after_s=int(_WINDOW_S),
            )

    def _note_failure(self, address: str) -> None:
        if len(self._failures) >= _ADDRESSES_MAX and address not in self._failures:
            del self._failures[next(iter(self._failures))]
        noted = self._failures.setdefault(address, deque(maxlen=FAILURES_MAX))
        noted.append(time.monotonic())


def _check_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    is_own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if is_own and site == "same-origin" and request.headers.get(ACT_HEADER) == "1":
        return
    raise RefusedError(
        "ORIGIN_FOREIGN",
        status=403,
        saw="The request does not come from a page of this monitor.",
        why="Another site could have made the browser send it.",
        fix=f"Send it with {ACT_HEADER}: 1, and with no foreign Origin.",
    )
