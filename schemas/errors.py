"""Errors of contracts, as a tree by what the caller may do next.

::

    ContractError            someone must change a contract or a reference to one
    ├── UnsafeContractError        a payload of it could kill a decoder
    ├── IncompatibleContractError  a version in use cannot be read
    └── EncodeError                one record does not fit; others may
    DecodeError              this payload is not an event; it is a dead letter

``code`` and ``reason_code`` are stable: scripts and runbooks may match on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar


class ContractError(Exception):
    """A contract cannot be used until someone changes it.

    Attributes:
        code: Stable upper-case identifier, such as ``CONTRACT_MISSING``.
        saw: What was observed.
        why: Why that stops the work.
        fix: What to do about it, as an instruction.
        faults: Each by itself, where there are several.
    """

    exit_code: ClassVar[int] = 78

    def __init__(
        self,
        code: str,
        *,
        saw: str,
        why: str,
        fix: str,
        faults: tuple[ContractError, ...] = (),
    ) -> None:
        super().__init__(f"{code}: {saw} {why} Fix: {fix}")
        self.code = code
        self.saw = saw
        self.why = why
        self.fix = fix
        self.faults = faults or (self,)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle: by default, keyword-only arguments do not come back."""
        faults = self.faults if len(self.faults) > 1 else ()
        return (_rebuild, (type(self), self.code, self.saw, self.why, self.fix, faults))


def _rebuild(  # noqa: PLR0913, PLR0917 - as pickle calls it
    kind: type[ContractError],
    code: str,
    saw: str,
    why: str,
    fix: str,
    faults: tuple[ContractError, ...],
) -> ContractError:
    return kind(code, saw=saw, why=why, fix=fix, faults=faults)


@contextmanager
def noting(faults: list[ContractError]) -> Iterator[None]:
    """Go on behind what is wrong, and note it for ``raise_faults``."""
    try:
        yield
    except ContractError as exc:
        faults.append(exc)


def raise_faults(found: Sequence[ContractError]) -> None:
    """Raise one error for all that was found; do nothing if that is nothing.

    Its class and its code are those of the first.
    """
    faults = [fault for one in found for fault in one.faults]
    if len(faults) == 1:
        raise faults[0]
    if not faults:
        return
    first = faults[0]
    lines = (f"\n  {one.code}: {one.saw} {one.why} Fix: {one.fix}" for one in faults)
    raise type(first)(
        first.code,
        saw=f"{len(faults)} problems:{''.join(lines)}\n",
        why="A contract is used only when all of it is understood.",
        fix="Correct each line above.",
        faults=tuple(faults),
    )


class UnsafeContractError(ContractError):
    """The contract allows payloads that no decoder survives, or types we lack."""


class IncompatibleContractError(ContractError):
    """Events of a version that may still lie in the topic could not be read."""


class EncodeError(ContractError):
    """A record does not fit its contract; nothing was written."""


class ReasonCode(StrEnum):
    """Why a payload is not an event; stored with the dead letter."""

    EMPTY_PAYLOAD = "EMPTY_PAYLOAD"
    BAD_MAGIC = "BAD_MAGIC"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    MALFORMED = "MALFORMED"
    TRAILING_BYTES = "TRAILING_BYTES"


class DecodeError(Exception):
    """A payload that is not an event of any known contract.

    Attributes:
        reason_code: Which rule it breaks.
        detail: What was seen, where, for the person who reads the dead letter.
    """

    def __init__(self, reason_code: ReasonCode, detail: str) -> None:
        super().__init__(reason_code, detail)
        self.reason_code = reason_code
        self.detail = detail

    def __str__(self) -> str:
        """Read as ``MALFORMED: field value: stream ended at byte 9 of 9``."""
        return f"{self.reason_code}: {self.detail}"
