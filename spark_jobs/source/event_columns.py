"""The names of an event's columns within a batch, in addition to its own fields.

These columns have the prefix ``tallyweir_``, which contracts and pipelines may not use.
The event's fields keep their names.
"""

from __future__ import annotations

#: Topic and partition, as ``SourcePlaces`` numbers them.
PLACE = "tallyweir_place"
OFFSET = "tallyweir_offset"
TIMESTAMP = "tallyweir_timestamp"
KEY = "tallyweir_key"
VALUE = "tallyweir_value"
#: The payload in the form that equal events share, if that is not the payload itself.
CANONICAL = "tallyweir_canonical"
#: What a record is that an envelope knows for no event, such as ``tombstone``.
SKIPPED = "tallyweir_skipped"
#: Whether Spark failed to decode the event and computed with nulls.
UNDECODED = "tallyweir_undecoded"
#: Which computed column has no value for the event, and why.
UNCOMPUTED = "tallyweir_uncomputed"
BROKEN_RULE = "tallyweir_broken_rule"
#: Which expression gives no value for the event, and why.
FAILED = "tallyweir_failed"
MODEL_ERROR = "tallyweir_model_error"
FILTERED_BY = "tallyweir_filtered_by"
#: Why the value of a header that the pipeline reads is no text.
BAD_HEADER = "tallyweir_bad_header"
#: Whether the record's key is one of the contract of keys.
IS_KEY = "tallyweir_is_key"
EVENT_ID = "tallyweir_event_id"
ID_SOURCE = "tallyweir_id_source"
EVENT_TIME = "tallyweir_event_time"
#: For rows of files: their bytes in the file, and why they do not fit the contract.
ORIGINAL = "tallyweir_original"
MISFIT = "tallyweir_misfit"


def argument_column(output_number: int, aggregate_number: int) -> str:
    """Name the column that holds an aggregate's argument."""
    return f"tallyweir_w{output_number}_a{aggregate_number}"


def branch_column(output_number: int) -> str:
    """Name the column that says which of an output's databases an event goes to."""
    return f"tallyweir_b{output_number}"


def wanted_column(output_number: int) -> str:
    """Name the column that says whether an output with a condition takes an event."""
    return f"tallyweir_o{output_number}_wanted"


def side_column(output_number: int, side: str) -> str:
    """Name the column that says whether an event is on a side of a join."""
    return f"tallyweir_j{output_number}_{side}"
