"""Apply a user's transform to the event frame, so that it can only add columns.

All earlier columns of the frame pass through the transform in one additional column,
from which they are restored afterwards. So a transform can add columns and change
nothing else: an event's ID, time, position and fields stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.pipeline.checks.names import (
    RESERVED_PREFIX,
    check_output_column,
)
from tallyweir.schemas.pipeline.checks.problems import raise_if_any
from tallyweir.schemas.pipeline.definition import Transform
from tallyweir.schemas.pipeline.functions.user_code import describe_failure
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError

_KEPT = "tallyweir_kept"


def apply_transform(
    events: DataFrame,
    transform: Transform,
    visible: Sequence[str],
    of_kafka: Mapping[str, Column],
) -> DataFrame:
    """Return the events with the columns that a transform adds.

    Args:
        events: The event frame, lookups included.
        transform: The user's transform.
        visible: The columns that it sees, in addition to the one that keeps all.
        of_kafka: Columns that it sees too, unless a column of their name hides them;
            they are not columns of the event.

    Raises:
        ConfigurationError: ``TRANSFORM_FAILED`` or ``TRANSFORM_COLUMNS``.
        PipelineError: An added column has a name that no table can have.
    """
    # The name of a header may have a dot.
    all_columns = (F.col(f"`{name}`") for name in events.columns)
    seen = [F.struct(*all_columns).alias(_KEPT), *map(F.col, visible)]
    hidden = {name.casefold() for name in visible}
    seen += [
        column.alias(name)
        for name, column in of_kafka.items()
        if name.casefold() not in hidden
    ]
    kept = events.select(*seen)
    try:
        transformed = transform(kept)
        found = {field.name: field.dataType for field in transformed.schema.fields}
    except TallyweirError:
        raise
    except PySparkException as error:
        # Spark's analyser quotes only the query; no event has been read yet.
        raise _failed(describe_failure(error, quote_message=True)[:1_000]) from error
    except Exception as error:
        raise _failed(describe_failure(error, quote_message=True)) from error
    for name, kind in ((f.name, f.dataType) for f in kept.schema.fields):
        if name not in found:
            raise _columns(f"The transform drops the column {name}.")
        if found[name] != kind:
            raise _columns(
                f"The transform makes {name} {found[name].simpleString()}; it was "
                f"{kind.simpleString()}."
            )
    added = [name for name in transformed.columns if name not in kept.columns]
    raise_if_any(
        "transform",
        (p for name in added for p in check_output_column(name, (name,))),
    )
    return transformed.select(
        *(F.col(_KEPT).getField(name).alias(name) for name in events.columns),
        *map(F.col, added),
    )


def added_columns(columns: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the columns of an event frame that a transform has added."""
    return [
        name
        for name in columns
        if name not in known and not name.startswith(RESERVED_PREFIX)
    ]


def _failed(what: str) -> ConfigurationError:
    return ConfigurationError(
        "TRANSFORM_FAILED",
        saw=f"The pipeline's transform failed: {what}.",
        why="Without the transform there are no events to publish.",
        fix="Correct the function in the pipeline's file.",
    )


def _columns(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "TRANSFORM_COLUMNS",
        saw=saw,
        why="A transform may add columns; it must not change the columns that it "
        "receives.",
        fix="Use withColumn with a new name, and drop no column.",
    )
