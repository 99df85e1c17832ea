"""How often an event may be among a pipeline's results."""

from __future__ import annotations

from enum import StrEnum


class Guarantee(StrEnum):
    """What a pipeline promises of each event; the ledger notes it for each batch."""

    #: Results, offsets and everything else change in one transaction.
    EXACTLY_ONCE = "exactly_once"
    #: Tasks write results by themselves and the offsets follow: a batch that is run
    #: again repeats what it had written.
    AT_LEAST_ONCE = "at_least_once"
