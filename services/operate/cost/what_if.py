"""Estimates what changes to a pipeline would save, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallyweir.services.operate.cost.estimate import GB, Estimate
from tallyweir.services.operate.cost.prices import Prices
from tallyweir.sinks.postgres.audit import Usage
from tallyweir.sinks.protocol.guarantee import Guarantee

#: Bytes of a new ID in a run: 16 of its fingerprint, 8 of its payload's hash.
_ID_BYTES = 24
#: Fewest batches for a line through them, and how well it must fit.
_BATCHES_MIN = 20
_R2_MIN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A change, and what it would have saved over the span.

    Attributes:
        change: The change.
        saving: The saving in the currency of the prices.
        share: The saving as a share of the total.
        formula: How it is computed, with the figures.
        certainty: How sure it is, in words.
    """

    change: str
    saving: float
    share: float
    formula: str
    certainty: str


def imagine(usage: Usage, estimate: Estimate, prices: Prices) -> tuple[WhatIf, ...]:
    """Return the changes whose saving the measured batches can show.

    With reserved machines, a saving is the part of them that would become idle. It
    saves money only once fewer machines are reserved.
    """
    return tuple(_imagine(usage, estimate, prices))


def _imagine(usage: Usage, estimate: Estimate, prices: Prices) -> Iterator[WhatIf]:
    step = usage.steps.get("deduplicate")
    if usage.deduplicates and step is not None:
        cpu, new = estimate.steps.get("deduplicate", 0.0), step.rows_out
        saving = cpu + new * _ID_BYTES / GB * prices.wal_gb
        formula = (
            f"deduplicate: {step.cpu_seconds:.1f} of {usage.cpu_s:.1f} CPU seconds of "
            f"the compute, and {new:,} new IDs of {_ID_BYTES} bytes of WAL"
        )
        yield _what_if(
            "without IDs (deduplicate: off)",
            saving,
            estimate,
            formula,
            "The CPU is measured; the WAL follows from the format of runs. The CPU "
            "of Postgres and of the driver's holder of IDs is not included.",
        )
        if usage.guarantee is Guarantee.EXACTLY_ONCE:
            yield _what_if(
                "at least once (guarantee: at_least_once)",
                saving,
                estimate,
                f"{formula}; rows go to their tables at once",
                "A lower bound: it looks up no IDs, and also moves no rows from "
                "staging; that CPU belongs to Postgres and is not measured. Rows may "
                "be repeated, and only pipelines that append can use it.",
            )
    yield from _larger_batches(usage, estimate)


def _larger_batches(usage: Usage, estimate: Estimate) -> Iterator[WhatIf]:
    fixed_s, fit = usage.batch_cpu_s, usage.batch_cpu_r2
    if fixed_s is None or fit is None or usage.batches < _BATCHES_MIN:
        return
    if fixed_s <= 0 or fit < _R2_MIN or not usage.cpu_s:
        return
    saved_s = min(fixed_s * usage.batches / 2, usage.cpu_s)
    saving = estimate.items["compute"].cost * saved_s / usage.cpu_s
    yield _what_if(
        "batches of twice the size",
        saving,
        estimate,
        f"{usage.batches:,} batches cost {fixed_s:.3f} CPU seconds each, regardless "
        "of their size; half of them would be saved",
        f"A line through all batches (R² {fit:.2f}), extrapolated to a size that "
        "was never measured; results would wait longer for their batch.",
    )


def _what_if(
    change: str, saving: float, estimate: Estimate, formula: str, certainty: str
) -> WhatIf:
    total = estimate.total
    return WhatIf(
        change=change,
        saving=saving,
        share=saving / total if total else 0.0,
        formula=formula,
        certainty=certainty,
    )
