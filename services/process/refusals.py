"""What a request or an event is refused with, as RFC 9457 says it."""

from __future__ import annotations

from http import HTTPStatus


class RefusedError(Exception):
    """A request, or one event of it, that is not taken; nothing of it is in Kafka.

    The exceptions are answers with ``OUTCOME_UNKNOWN``, which say so.

    Attributes:
        code: Stable upper-case identifier, listed in ``docs/operations.md``.
        status: Of the answer.
        saw: What was observed; never a secret, and of a payload a few words at most.
        why: Why that is a problem.
        fix: What the producer does about it.
        retry_after_s: When the same request may succeed; None if it never will.
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
        """Write it as the members of a problem document."""
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
