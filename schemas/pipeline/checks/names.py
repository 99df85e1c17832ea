"""Checks the names in a pipeline, and refuses those that Tallyweir uses itself.

Names become SQL identifiers and parts of file names. They are quoted wherever they are
used. The patterns exclude names that would confuse people, or that Postgres would
silently cut after 63 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tallyweir.schemas.pipeline.checks.problems import Path, Problem, StandIn
from tallyweir.sinks.protocol.column_names import stored_name

#: The topic of an event, as every append table has it.
KAFKA_TOPIC = "kafka_topic"
#: What the names of Kafka's own columns begin with.
KAFKA_PREFIX = "kafka_"
RESERVED_COLUMNS = frozenset(
    {
        KAFKA_TOPIC,
        "kafka_partition",
        "kafka_offset",
        "window_start",
        "window_end",
        "pane",
        "final",
    }
)
#: System columns of Postgres; no other column may have these names. Case counts.
_SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
RESERVED_PREFIX = "tallyweir_"

_PIPELINE = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_REASON_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,62}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OWN_SCHEMA = re.compile(r"(tallyweir.*|pg_.*|information_schema)", re.IGNORECASE)

_IDENTIFIER_RULE = (
    "a letter or underscore, then letters, digits or underscores, at most 63 in all"
)


def check_pipeline_name(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a pipeline."""
    if not _PIPELINE.fullmatch(name):
        yield _bad_name(
            f"The pipeline is called {name!r}.",
            (
                "a lower-case letter, then lower-case letters, digits, _ or -, at "
                "most 40 in all"
            ),
            at,
        )


def check_topic(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a topic."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        yield _bad_name(
            f"The topic is called {name!r}.",
            "letters, digits, dots, _ or -, at most 249 in all",
            at,
        )


def check_reason_code(code: str, at: Path) -> Iterator[Problem]:
    """Find problems with a reason code of dead letters."""
    if not _REASON_CODE.fullmatch(code):
        yield _bad_name(
            f"The reason code is {code!r}.",
            "UPPER_SNAKE_CASE, such as IMPOSSIBLE_DISTANCE, at most 63 in all",
            at,
        )


def check_table(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a table, or with ``schema.table``."""
    schema, dot, table = name.rpartition(".")
    parts = (schema, table) if dot else (table,)
    if not all(_IDENTIFIER.fullmatch(part) for part in parts):
        yield _bad_name(
            f"The table is called {name!r}.",
            f"table or schema.table, each of them {_IDENTIFIER_RULE}",
            at,
        )


def check_output_table(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a table that a pipeline writes."""
    yield from check_table(name, at)
    schema, _, _ = name.rpartition(".")
    if _OWN_SCHEMA.fullmatch(schema):
        yield Problem(
            code="PIPELINE_RESERVED_NAME",
            at=at,
            saw=f"The table {name!r} is in schema {schema!r}.",
            why="That schema holds tables of Tallyweir or Postgres itself.",
            fix="Choose another schema, or leave it out.",
        )


def check_column(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a column of any table."""
    if not _IDENTIFIER.fullmatch(name):
        yield _bad_name(f"The column is called {name!r}.", _IDENTIFIER_RULE, at)


def check_stored_column(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a column of a table that Tallyweir makes."""
    yield from check_column(name, at)
    if name in _SYSTEM_COLUMNS:
        yield Problem(
            code="PIPELINE_RESERVED_NAME",
            at=at,
            saw=f"The column is called {name!r}.",
            why="Every Postgres table has a system column of this name.",
            fix="Choose another name: in a new version of the contract, with this one "
            "as its alias; or leave the column out of the output.",
        )


def check_output_column(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with the name of a column of a result table."""
    yield from check_stored_column(name, at)
    folded = name.casefold()
    if folded in RESERVED_COLUMNS or folded.startswith(RESERVED_PREFIX):
        yield Problem(
            code="PIPELINE_RESERVED_NAME",
            at=at,
            saw=f"The column is called {name!r}.",
            why="Tallyweir adds a column of this name to every result.",
            fix="Choose another name.",
        )


def check_event_column(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with a column of events that a result table takes by its name."""
    if name == KAFKA_TOPIC:
        return
    yield from check_output_column(stored_name(name), at)


def check_selected_column(name: str, at: Path) -> Iterator[Problem]:
    """Find problems with a column of events that is staged beside their positions."""
    yield from check_stored_column(stored_name(name), at)
    if name == KAFKA_TOPIC:
        yield Problem(
            code="PIPELINE_RESERVED_NAME",
            at=at,
            saw=f"The column is called {name!r}.",
            why="Topic, partition and offset go with each event without being named.",
            fix="Leave it out.",
        )


def check_distinct(names: list[str], what: str, at: Path) -> Iterator[Problem]:
    """Find names that Spark, which ignores case, cannot tell apart."""
    seen: set[str] = set()
    for name in names:
        if isinstance(name, StandIn):
            continue
        if name.casefold() in seen:
            yield Problem(
                code="PIPELINE_DUPLICATE_NAME",
                at=at,
                saw=f"There are two {what} called {name!r}.",
                why="They cannot be distinguished; names ignore case.",
                fix="Rename or remove one.",
            )
        seen.add(name.casefold())


def _bad_name(saw: str, rule: str, at: Path) -> Problem:
    return Problem(
        code="PIPELINE_NAME",
        at=at,
        saw=saw,
        why=f"The name must be {rule}.",
        fix="Choose a name that fits.",
    )
