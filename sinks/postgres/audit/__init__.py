"""Audits of a pipeline's databases: counts, the fate of an event, and progress.

Everything here except ``accept_gaps`` and ``note_receipt`` only reads. Each answer
comes from one snapshot of each database.
"""

from __future__ import annotations

from tallyweir.sinks.postgres.audit.checks.keyed_state import (
    KeyReport as KeyReport,
    read_key as read_key,
)
from tallyweir.sinks.postgres.audit.checks.recount import (
    RecountSpan as RecountSpan,
    check_recount as check_recount,
    read_recount_spans as read_recount_spans,
)
from tallyweir.sinks.postgres.audit.checks.visible_offset import (
    is_visible as is_visible,
)
from tallyweir.sinks.postgres.audit.receipt import (
    Check as Check,
    Receipt as Receipt,
    Totals as Totals,
    Verdict as Verdict,
)
from tallyweir.sinks.postgres.audit.status.acts import (
    KnownFork as KnownFork,
    RecordedAct as RecordedAct,
    read_acts as read_acts,
    read_forks as read_forks,
)
from tallyweir.sinks.postgres.audit.status.batch_costs import (
    CustomFigures as CustomFigures,
    HotKey as HotKey,
    OutputUsage as OutputUsage,
    StateSize as StateSize,
    StepUsage as StepUsage,
    UnnamedField as UnnamedField,
    Usage as Usage,
    read_bottleneck as read_bottleneck,
    read_evidence as read_evidence,
    read_reported as read_reported,
    read_unnamed as read_unnamed,
    read_usage as read_usage,
)
from tallyweir.sinks.postgres.audit.status.batches import (
    Charts as Charts,
    CommittedFigures as CommittedFigures,
    LedgerBatch as LedgerBatch,
    SlotOfTime as SlotOfTime,
    read_batches as read_batches,
    read_charts as read_charts,
    read_history as read_history,
    read_recent_figures as read_recent_figures,
)
from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
    DatabaseStatus as DatabaseStatus,
)
from tallyweir.sinks.postgres.audit.status.gap_acceptance import (
    RetentionGap as RetentionGap,
    accept_gaps as accept_gaps,
    find_gaps as find_gaps,
)
from tallyweir.sinks.postgres.audit.status.job_graph import (
    JobGraph as JobGraph,
    KeptSample as KeptSample,
    KeptSamples as KeptSamples,
    read_job_graph as read_job_graph,
    read_samples as read_samples,
)
from tallyweir.sinks.postgres.audit.status.output_tables import (
    OutputTable as OutputTable,
    read_output_tables as read_output_tables,
)
from tallyweir.sinks.postgres.audit.status.overview import (
    PipelineSummary as PipelineSummary,
    read_overview as read_overview,
)
from tallyweir.sinks.postgres.audit.status.progress import (
    PartitionClockState as PartitionClockState,
    PartitionStatus as PartitionStatus,
    PipelineState as PipelineState,
    Status as Status,
    WindowStatus as WindowStatus,
    read_driver as read_driver,
    read_status as read_status,
)
from tallyweir.sinks.postgres.audit.status.receipt_note import (
    KeptReceipt as KeptReceipt,
    note_receipt as note_receipt,
)
from tallyweir.sinks.postgres.audit.status.scaling_state import (
    RecordedDecision as RecordedDecision,
    Scaling as Scaling,
    read_scaling as read_scaling,
)
from tallyweir.sinks.postgres.audit.status.waiting import (
    Waiting as Waiting,
    WaitingWindows as WaitingWindows,
    read_waiting as read_waiting,
)
from tallyweir.sinks.postgres.audit.verification import verify as verify
from tallyweir.sinks.postgres.audit.why.dead_letters import (
    DeadLetter as DeadLetter,
    DeadLetterGroup as DeadLetterGroup,
    WholeLetter as WholeLetter,
    group_dead_letters as group_dead_letters,
    read_dead_letters as read_dead_letters,
    read_letter as read_letter,
)
from tallyweir.sinks.postgres.audit.why.explanation import (
    CatalogHit as CatalogHit,
    Explanation as Explanation,
    explain as explain,
)
from tallyweir.sinks.postgres.audit.why.narration import (
    narrate as narrate,
    narrate_unknown as narrate_unknown,
)
from tallyweir.sinks.postgres.audit.why.window_rows import (
    WindowRow as WindowRow,
    find_window_rows as find_window_rows,
    read_batch_ranges as read_batch_ranges,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline as AuditedPipeline,
    AuditedSource as AuditedSource,
    read_next_offsets as read_next_offsets,
    read_source as read_source,
    read_topic_ids as read_topic_ids,
)
