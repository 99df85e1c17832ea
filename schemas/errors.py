"""Errors of contracts, arranged by what the caller can do next.

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
        faults: The single problems, if the error reports several.
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
        """Pickle the error; by default, pickle loses keyword-only arguments."""
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
    """Note an error of the block for ``raise_faults``, and go on."""
    try:
        yield
    except ContractError as exc:
        faults.append(exc)


def raise_faults(found: Sequence[ContractError]) -> None:
    """Raise one error for all problems found; do nothing if there are none.

    The error has the class and the code of the first problem.
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
        why="A contract is used only if every part of it is valid.",
        fix="Correct each line above.",
        faults=tuple(faults),
    )


class UnsafeContractError(ContractError):
    """The contract allows payloads that kill a decoder, or unsupported types."""


class IncompatibleContractError(ContractError):
    """The topic may still hold events of a version that the contract cannot read."""


class EncodeError(ContractError):
    """A record does not fit its contract; nothing was written."""


class ReasonCode(StrEnum):
    """Why a payload is not an event; stored with the dead letter."""

    EMPTY_PAYLOAD = "EMPTY_PAYLOAD"
    BAD_MAGIC = "BAD_MAGIC"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    MALFORMED = "MALFORMED"
    TRAILING_BYTES = "TRAILING_BYTES"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    WRONG_TYPE = "WRONG_TYPE"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    MISSING_FIELD = "MISSING_FIELD"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"


class DecodeError(Exception):
    """A payload that is not an event of any known contract.

    Attributes:
        reason_code: Which rule it breaks.
        detail: What was seen and where, for the reader of the dead letter.
    """

    def __init__(self, reason_code: ReasonCode, detail: str) -> None:
        super().__init__(reason_code, detail)
        self.reason_code = reason_code
        self.detail = detail

    def __str__(self) -> str:
        """Return, say, ``MALFORMED: field value: stream ended at byte 9 of 9``."""
        return f"{self.reason_code}: {self.detail}"
