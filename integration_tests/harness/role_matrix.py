"""Who may do what to the tables and views of ours: the matrix of docs/security.md."""

from __future__ import annotations


def _updates(letters: str, *columns: str) -> dict[str, str]:
    return {f"update {column}": letters for column in columns}


#: What is read and replaced by the driver, and shown by the monitor.
_KEPT = {"select": "PM", "insert": "P", "delete": "P"}

#: Who may do what to each table and view of the home; a named column goes before the
#: table. P publisher, R relay, V reader, M monitor, A alerts. The owner
#: alone may anything else.
HOME_MATRIX: dict[str, dict[str, str]] = {
    "installation": {
        "select": "PRMA",
        "select only_row": "PM",
        "select fingerprint_key": "PM",
        "select installed_at": "PM",
    },
    "pipeline": {
        "select": "PRVMA",
        "insert": "P",
        **_updates("P", "definition", "definition_hash", "watermark", "last_sequence"),
    },
    "epoch_claim": {"select": "PVMA", "insert": "P"},
    "partition_progress": {
        "select": "PRVMA",
        "insert": "P",
        **_updates("P", "next_offset", "event_time_max", "active_at"),
    },
    "batch": {"select": "PRVMA", "insert": "P"},
    "batch_partition": {"select": "PVMA", "insert": "P"},
    "batch_output": {"select": "PVMA", "insert": "P"},
    "batch_branch": {"select": "PVM", "insert": "P", "update committed_at": "P"},
    "batch_measures": {"select": "PM", "insert": "P", "delete": "P"},
    "batch_usage": {"select": "VMA"},
    "accepted_gap": {"select": "PVM"},
    "accepted_loss": {"select": "PVMA"},
    "offset_reset": {"select": "PVM"},
    "snapshot": {"select": "PVM"},
    "restore": {"select": "PVM"},
    "seen_id_run": _KEPT | _updates("P", "is_hidden"),
    "batch_run": {"select": "PVM", "insert": "P"},
    "batch_run_input": {"select": "PVM", "insert": "P"},
    "erased_id": {"select": "PVM"},
    "erased_row": {"select": "PVM"},
    "erased_result": {"select": "PVM"},
    "shadow_table": {"select": "PVM"},
    "discarded_pipeline": {"select": "PVMA"},
    "replaced_row": {"select": "PVM", "select event_id": "PM", "insert": "P"},
    "dead_letter": {
        "select": "PRVM",
        "select kafka_topic": "RVM",
        "select kafka_partition": "RVM",
        "select kafka_offset": "RVM",
        "select kafka_timestamp": "RVM",
        "select event_id": "RM",
        "select key": "RM",
        "select payload": "RM",
        "select detail": "RM",
        "insert": "P",
    },
    "late_event": {
        "select": "VM",
        "select event_id": "M",
        "select payload": "M",
        "insert": "P",
    },
    "expired_event": {
        "select": "VM",
        "select event_id": "M",
        "select payload": "M",
        "insert": "P",
    },
    "pause": {"select": "PVMA", "insert": "P"},
    "drain": {"select": "PVMA"} | _updates("P", "drained_epoch"),
    "scaling_bounds": {"select": "PVM"},
    "scaling_decision": {"select": "PVM", "insert": "P"},
    "act": {"select": "PVMA", "insert": "P"},
    "redrive": {"select": "VM"},
    "sample": _KEPT | _updates("P", "sequence", "redacted", "rows"),
    "driver_log": {"select": "PM", "insert": "P", "delete": "P"},
    "registered_schema": {"select": "PVMA", "insert": "P"},
    "receipt": {
        "select": "PVMA",
        "insert": "M",
        **_updates("M", "is_verified", "summary", "batches", "taken_at", "taken_by"),
    },
    "pipeline_version": {"select": "PVM", "insert": "P"}
    | _updates("P", "layout", "file_text"),
    "duplicate_event": {"select": "VM", "select event_id": "M", "insert": "P"},
    "filtered_event": {"select": "VM", "select event_id": "M", "insert": "P"},
    "keyed_state": _KEPT
    | _updates("P", "value", "schema_version", "expires_at", "sequence"),
    "keyed_timer": _KEPT | _updates("P", "shard", "clock", "fires_at", "sequence"),
    "relay_cursor": {
        "select": "RVM",
        "insert": "R",
        **_updates("R", "sequence", "kafka_topic", "kafka_partition", "kafka_offset"),
        **_updates("R", "messages", "moved_at"),
    },
    "outbox": {
        "select": "RVM",
        "select event_id": "RM",
        "select key": "RM",
        "select value": "RM",
        "insert": "P",
        "delete": "R",
    },
    "conservation": {"select": "PVM"},
    "standing_from": {"select": "PVM"},
    "visible_through": {"select": "PRVMA"},
    "put_aside": {"select": "VM"},
    "second_chance": {"select": "VM"},
    "no_result": {"select": "VM"},
    "visible_offset": {"select": "PRVM"},
    "alert": {
        "select": "VMA",
        "insert": "A",
        "delete": "A",
        **_updates("A", "severity", "since", "mark", "value", "told"),
        **_updates("A", "observed_at", "fired_at", "resolved_at"),
    },
    "alert_delivery": {
        "select": "VMA",
        "insert": "A",
        **_updates("A", "due_at", "failures", "error_code", "delivered_at"),
    },
    "profile": {"select": "PVM", "insert": "P", "delete": "P"},
    "pipeline_gauge": {"select": "VM", "insert": "M", "delete": "M"},
    "_yoyo_migration": {"select": "PRVMA"},
    "_yoyo_log": {"select": "M"},
    "_yoyo_version": {"select": "M"},
    "yoyo_lock": {"select": "M"},
}
PARTICIPANT_MATRIX: dict[str, dict[str, str]] = {
    "marker": {"select": "PM", "insert": "P", "update prepared_at": "P"},
    "_yoyo_migration": {"select": "PM"},
    "_yoyo_log": {"select": "M"},
    "_yoyo_version": {"select": "M"},
    "yoyo_lock": {"select": "M"},
}
