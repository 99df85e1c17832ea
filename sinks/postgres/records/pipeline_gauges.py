"""What only a watcher sees of a pipeline, kept at intervals for charts.

No decision depends on gauges. A second watcher adds nothing: the first gauges of each
interval stay.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.status.batch_costs import CATALOG, read_state_sizes
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_one,
    fetch_pipeline,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.records", "pipeline_gauges.sql")

#: Seconds from one reading of the gauges to the next.
EVERY_S = 30
#: How long gauges are kept: two days.
KEPT_S = 2 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeFigures:
    """What the home database says about a pipeline besides the overview.

    Attributes:
        prepared: Branches that are prepared on the home's server, decided or not.
        prepared_s: Seconds since the first of them was prepared; 0 without any.
        in_doubt: Batches that are decided and not committed in every database.
        in_doubt_s: Seconds since the first of them was decided; 0 without any.
        state_bytes: Size of windows, and of keyed state if the pipeline has any; all
            pipelines of a home share the tables of keyed state.
        catalog_ids: Number of IDs in the catalog; None if the pipeline has no catalog.
        catalog_bytes: Size of the catalog; None without one.
    """

    prepared: int
    prepared_s: float
    in_doubt: int
    in_doubt_s: float
    state_bytes: int
    catalog_ids: int | None
    catalog_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """A pipeline at one moment.

    Attributes:
        freshness_s: Seconds by which the newest committed event is behind the clock.
        lag: Offsets yet to read. None if Kafka does not answer; then the next three are
            None too.
        catch_up_s: Seconds to read them at the last minute's rate; None while nothing
            is read.
        unread_s: Seconds since Kafka has had the oldest unread record; None without
            one.
        headroom_s: Seconds until Kafka deletes that record; None if it never does.
        home: Figures of the home database.
    """

    freshness_s: float | None
    lag: int | None
    catch_up_s: float | None
    unread_s: float | None
    headroom_s: float | None
    home: HomeFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGauges(Gauges):
    """Gauges that were kept.

    Attributes:
        at: The start of their interval, by the home's clock.
    """

    at: datetime


def read_home_figures(connection: Connection[TupleRow], pipeline: str) -> HomeFigures:
    """Read the gauges that the home database has, from one snapshot.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, or a table may not be read.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading figures of a pipeline"):
        audited = read_pipeline(connection, pipeline)
        under_way = fetch_one(connection, _SQL["under_way"], pipeline=pipeline)
        sizes = read_state_sizes(connection, audited)
    catalog = next((one for one in sizes if one.name == CATALOG), None)
    return HomeFigures(
        **under_way,
        state_bytes=sum(one.bytes for one in sizes if one is not catalog),
        catalog_ids=None if catalog is None else catalog.rows,
        catalog_bytes=None if catalog is None else catalog.bytes,
    )


def keep_gauges(
    connection: Connection[TupleRow], pipeline: str, gauges: Gauges
) -> None:
    """Keep gauges, unless their interval has some, and delete those that are too old.

    Args:
        connection: To the home, outside of a transaction.
        pipeline: Its name.
        gauges: The gauges of this moment.

    Raises:
        ConfigurationError: The role may not write them.
        RetryableError: The server went away, or is a standby.

    Crash:
        Before the COMMIT the gauges are lost, and the chart has a gap.
    """
    values = asdict(gauges)
    values |= values.pop("home")
    with translated("keeping gauges of a pipeline"), connection.transaction():
        connection.execute(
            _SQL["keep"], {**values, "pipeline": pipeline, "every_s": EVERY_S}
        )
        connection.execute(_SQL["forget"], {"pipeline": pipeline, "kept_s": KEPT_S})


def read_newest_gauges(
    connection: Connection[TupleRow], pipeline: str
) -> KeptGauges | None:
    """Read the newest gauges of a pipeline; None if no gauges were ever kept.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    return next(iter(_read(connection, "newest", pipeline)), None)


def read_gauges(
    connection: Connection[TupleRow], pipeline: str, *, seconds: int
) -> list[KeptGauges]:
    """Read the gauges of the last seconds, oldest first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    return _read(connection, "history", pipeline, seconds=seconds)


def _read(
    connection: Connection[TupleRow],
    statement: str,
    pipeline: str,
    **values: object,
) -> list[KeptGauges]:
    with snapshot(connection, doing="reading gauges of a pipeline"):
        fetch_pipeline(connection, pipeline)
        rows = fetch(connection, _SQL[statement], pipeline=pipeline, **values)
    return [
        KeptGauges(
            home=HomeFigures(
                **{name: row.pop(name) for name in HomeFigures.__dataclass_fields__}
            ),
            **row,
        )
        for row in rows
    ]
