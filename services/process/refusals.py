"""The refusal of a request or an event, as an RFC 9457 problem."""

from __future__ import annotations

from http import HTTPStatus


class RefusedError(Exception):
    """A request, or one of its events, is refused; nothing of it is in Kafka.

    The exception is the code ``OUTCOME_UNKNOWN``: the event may be in Kafka.

    Attributes:
        code: Stable upper-case identifier, listed in ``docs/operations.md``.
        status: The answer's HTTP status.
        saw: What was observed; never a secret, and at most a few words of a payload.
        why: Why that is a problem.
        fix: What the producer does about it.
        retry_after_s: The seconds after which the same request may succeed; None if it
            never will.
    """

    def __init__(  # noqa: PLR0913 (keyword-only; an explanation has these parts)
        self,
        code: str,
        *,
        status: int,
        saw: str,
        why: str,
        fix: str,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(f"{code}: {saw}")
        self.code = code
        self.status = status
        self.saw = saw
        self.why = why
        self.fix = fix
        self.retry_after_s = retry_after_s

    def as_problem(self) -> dict[str, object]:
        """Return it as the members of a problem document."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": f"{self.saw} {self.why} {self.fix}",
            "code": self.code,
            "saw": self.saw,
            "why": self.why,
            "fix": self.fix,
        }
