"""Audits of a pipeline's databases: counts, the fate of an event, and progress.

Everything here except ``accept_gaps`` and ``note_receipt`` only reads. Each answer
comes from one snapshot of each database.
"""

from __future__ import annotations

from tallyweir.sinks.postgres.audit.checks.keyed_state import KeyReport, read_key
from tallyweir.sinks.postgres.audit.checks.recount import (
    RecountSpan,
    check_recount,
    read_recount_spans,
)
from tallyweir.sinks.postgres.audit.checks.visible_offset import is_visible
from tallyweir.sinks.postgres.audit.receipt import Check, Receipt, Totals, Verdict
from tallyweir.sinks.postgres.audit.status.acts import (
    KnownFork,
    RecordedAct,
    read_acts,
    read_forks,
)
from tallyweir.sinks.postgres.audit.status.batch_costs import (
    CustomFigures,
    HotKey,
    OutputUsage,
    StateSize,
    StepUsage,
    Usage,
    read_bottleneck,
    read_evidence,
    read_reported,
    read_usage,
)
from tallyweir.sinks.postgres.audit.status.batches import (
    Charts,
    CommittedFigures,
    LedgerBatch,
    SlotOfTime,
    read_batches,
    read_charts,
    read_history,
    read_recent_figures,
)
from tallyweir.sinks.postgres.audit.status.branches_in_doubt import DatabaseStatus
from tallyweir.sinks.postgres.audit.status.gap_acceptance import (
    RetentionGap,
    accept_gaps,
    find_gaps,
)
from tallyweir.sinks.postgres.audit.status.job_graph import (
    JobGraph,
    KeptSample,
    KeptSamples,
    read_job_graph,
    read_samples,
)
from tallyweir.sinks.postgres.audit.status.output_tables import (
    OutputTable,
    read_output_tables,
)
from tallyweir.sinks.postgres.audit.status.overview import (
    PipelineSummary,
    read_overview,
)
from tallyweir.sinks.postgres.audit.status.progress import (
    PartitionClockState,
    PartitionStatus,
    PipelineState,
    Status,
    WindowStatus,
    read_driver,
    read_status,
)
from tallyweir.sinks.postgres.audit.status.receipt_note import KeptReceipt, note_receipt
from tallyweir.sinks.postgres.audit.status.scaling_state import (
    RecordedDecision,
    Scaling,
    read_scaling,
)
from tallyweir.sinks.postgres.audit.status.waiting import (
    Waiting,
    WaitingWindows,
    read_waiting,
)
from tallyweir.sinks.postgres.audit.verification import verify
from tallyweir.sinks.postgres.audit.why.dead_letters import (
    DeadLetter,
    DeadLetterGroup,
    WholeLetter,
    group_dead_letters,
    read_dead_letters,
    read_letter,
)
from tallyweir.sinks.postgres.audit.why.explanation import (
    CatalogHit,
    Explanation,
    explain,
)
from tallyweir.sinks.postgres.audit.why.narration import narrate, narrate_unknown
from tallyweir.sinks.postgres.audit.why.window_rows import (
    WindowRow,
    find_window_rows,
    read_batch_ranges,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    AuditedSource,
    read_next_offsets,
    read_source,
    read_topic_ids,
)

__all__ = [
    "AuditedPipeline",
    "AuditedSource",
    "CatalogHit",
    "Charts",
    "Check",
    "CommittedFigures",
    "CustomFigures",
    "DatabaseStatus",
    "DeadLetter",
    "DeadLetterGroup",
    "Explanation",
    "HotKey",
    "JobGraph",
    "KeptReceipt",
    "KeptSample",
    "KeptSamples",
    "KeyReport",
    "KnownFork",
    "LedgerBatch",
    "OutputTable",
    "OutputUsage",
    "PartitionClockState",
    "PartitionStatus",
    "PipelineState",
    "PipelineSummary",
    "Receipt",
    "RecordedAct",
    "RecordedDecision",
    "RecountSpan",
    "RetentionGap",
    "Scaling",
    "SlotOfTime",
    "StateSize",
    "Status",
    "StepUsage",
    "Totals",
    "Usage",
    "Verdict",
    "Waiting",
    "WaitingWindows",
    "WholeLetter",
    "WindowRow",
    "WindowStatus",
    "accept_gaps",
    "check_recount",
    "explain",
    "find_gaps",
    "find_window_rows",
    "group_dead_letters",
    "is_visible",
    "narrate",
    "narrate_unknown",
    "note_receipt",
    "read_acts",
    "read_batch_ranges",
    "read_batches",
    "read_bottleneck",
    "read_charts",
    "read_dead_letters",
    "read_driver",
    "read_evidence",
    "read_forks",
    "read_history",
    "read_job_graph",
    "read_key",
    "read_letter",
    "read_next_offsets",
    "read_output_tables",
    "read_overview",
    "read_recent_figures",
    "read_recount_spans",
    "read_reported",
    "read_samples",
    "read_scaling",
    "read_source",
    "read_status",
    "read_topic_ids",
    "read_usage",
    "read_waiting",
    "verify",
]
