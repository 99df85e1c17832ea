"""How often an event may be among a pipeline's results."""

from __future__ import annotations

from enum import StrEnum


class Guarantee(StrEnum):
    """What a pipeline promises for each event; the ledger notes it for each batch."""

    #: Results, offsets and everything else change in one transaction.
    EXACTLY_ONCE = "exactly_once"
    #: Tasks write results by themselves and the offsets follow: if a batch is run
    #: again, it writes its rows again.
    AT_LEAST_ONCE = "at_least_once"
