"""Errors, as a tree ordered by what the caller may do next.

::

    TallyweirError
    ├── ConfigurationError   the operator must change something; exit 78
    ├── RetryableError       the same call again may succeed; exit 75
    │   └── OutcomeUnknownError   no answer came; read the ledger, then decide
    ├── FencedError          a newer driver of the pipeline works; stop; exit 76
    └── FatalError           stop and page: going on could lose or double; exit 70
        └── DisagreementError    two databases hold different histories

Every error says what was seen, why that is a problem, and the fix. ``code`` is
stable: scripts and runbooks may match on it, never on the sentences.
"""

from __future__ import annotations

from typing import ClassVar


class TallyweirError(Exception):
    """An error that an operator can act on.

    Attributes:
        code: Stable upper-case identifier, such as ``TOPIC_MISSING``.
        saw: What was observed, with the values that matter (never a secret).
        why: Why that stops the work.
        fix: What to do about it, as an instruction.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, *, saw: str, why: str, fix: str) -> None:
        super().__init__(f"{code}: {saw} {why} Fix: {fix}")
        self.code = code
        self.saw = saw
        self.why = why
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments do not unpickle by default, and Spark
        # sends these from its Python workers to the driver.
        return (_rebuild, (type(self), self.code, self.saw, self.why, self.fix))


def describe_error(error: Exception) -> list[str]:
    """Write an explained error as the four lines that a command prints.

    Args:
        error: Any exception with ``code``, ``saw``, ``why`` and ``fix``.
    """
    lines = [f"{getattr(error, 'code', type(error).__name__)}"]
    for field in ("saw", "why", "fix"):
        # Lines that follow the first are indented under it.
        text = str(getattr(error, field, "")).strip().replace("\n", "\n       ")
        lines.append(f"  {field}: {text}")
    return lines


def _rebuild(
    kind: type[TallyweirError], code: str, saw: str, why: str, fix: str
) -> TallyweirError:
    return kind(code, saw=saw, why=why, fix=fix)


class ConfigurationError(TallyweirError):
    """The operator must change the pipeline, a setting or an outside system."""

    exit_code: ClassVar[int] = 78


class RetryableError(TallyweirError):
    """The outside world failed for now; the same call again may succeed."""

    exit_code: ClassVar[int] = 75


class OutcomeUnknownError(RetryableError):
    """COMMIT was sent and no answer came: the ledger knows, the caller does not."""


class FencedError(TallyweirError):
    """A newer driver of the same pipeline has claimed an epoch; this one must stop."""

    exit_code: ClassVar[int] = 76


class FatalError(TallyweirError):
    """Going on could lose or double events: stop, and let the operator look."""

    exit_code: ClassVar[int] = 70


class DisagreementError(FatalError):
    """Home and another database hold different histories of a branch.

    A driver that finds one in the middle of a batch checks again before it stops.
    """
