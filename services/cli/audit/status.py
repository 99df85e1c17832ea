"""``status``: shows where a pipeline stands, how fast it is, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tallyweir.services.cli.arguments import (
    AsJson,
    PipelineName,
    connected_home,
    pipeline_databases,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json, say_table
from tallyweir.services.kafka.source_lag import lags_of, positions_of
from tallyweir.sinks.protocol.offsets import TopicPartition

if TYPE_CHECKING:
    from tallyweir.services.kafka.open_transactions import HeldBack
    from tallyweir.sinks.diagnosis.bottleneck import Bottleneck
    from tallyweir.sinks.postgres.audit import (
        CommittedFigures,
        CustomFigures,
        DatabaseStatus,
        HotKey,
        PartitionStatus,
        Status,
        UnnamedField,
    )
    from tallyweir.sinks.postgres.records.pipeline_gauges import KeptGauges

#: Number of newest batches whose figures from functions are added up.
_NEWEST = 100


@command("tallyweir status departures", "tallyweir status p.yaml --json")
def status(
    pipeline: PipelineName,
    as_json: AsJson = False,
) -> None:
    """Show offsets, lag, watermark, throughput and the last batch of a pipeline.

    RUNNING: it reads on; CAUGHT UP: nothing is left to read; STALLED: there is work
    and a driver, but no batch for a minute; STOPPED: no driver is connected; FENCED:
    only an older one is, which may publish nothing; PAUSED: nothing is published until
    `resume`; DRAINING: nothing is read any more, and a driver finishes what there is;
    DRAINED: it has.
    docs/status.md has the formula of every number.
    """
    from tallyweir.services.kafka.open_transactions import find_held_back
    from tallyweir.services.operate.pipeline_json import bottleneck_json, gauges_json
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.kafka_admin import KafkaAdmin
    from tallyweir.sinks.postgres import audit
    from tallyweir.sinks.postgres.records.pipeline_gauges import read_newest_gauges

    databases = pipeline_databases(pipeline)
    endpoints = find_endpoints()
    name = pipeline_name(pipeline)
    with connected_home("status") as home:
        found = audit.read_status(home, name, databases)
        topics = audit.read_source(home, name).topics
        positions, troubles = KafkaAdmin(
            endpoints.kafka_bootstrap, *topics
        ).read_there()
        broker = positions_of(topics, positions)
        # Especially when Kafka is down, show what the home database knows.
        for error in troubles:
            note(f"lag unknown: {error.code}: {error.saw}")
        held_back = find_held_back(endpoints.kafka_bootstrap, broker or {})
        lags = lags_of(found.next_offsets, broker)
        total = None if lags is None else sum(lags.values())
        bottleneck = audit.read_bottleneck(home, name, lag=total)
        custom, hot_keys = audit.read_reported(home, name, newest=_NEWEST)
        unnamed = audit.read_unnamed(home, name)
        committed = audit.read_recent_figures(home, name)
        gauges = read_newest_gauges(home, name)
    if as_json:
        measured = {
            "bottleneck": bottleneck_json(bottleneck),
            "custom": asdict(custom),
            "hot_keys": [asdict(one) for one in hot_keys],
            "unnamed_fields": [
                asdict(one) | {"since": one.since.isoformat()} for one in unnamed
            ],
            "committed": asdict(committed),
            "gauges": gauges_json(gauges),
            "held_back": None if broker is None else [_held_json(x) for x in held_back],
        }
        say_json(status_json(found, lags) | measured)
    else:
        _say_status(found, lags)
        for one in held_back:
            say(one.told())
        _say_gauges(committed, gauges)
        _say_custom(custom)
        _say_hot_keys(hot_keys)
        _say_unnamed(unnamed)
        _say_bottleneck(bottleneck)


def status_json(
    found: Status, lags: Mapping[TopicPartition, int] | None
) -> dict[str, object]:
    """Return plain values; unknown ones are None."""
    total = None if lags is None else sum(lags.values())
    return {
        "pipeline": found.pipeline,
        "guarantee": found.guarantee.value,
        "state": found.state(total).value,
        "lag": total,
        "observed_at": found.observed_at.isoformat(),
        "watermark": found.watermark and found.watermark.isoformat(),
        "freshness_s": found.freshness_s,
        "since_commit_s": found.since_commit_s,
        "events_per_second_minute": found.minute_rate,
        "events_per_second_batches": found.batches_rate,
        "partitions": [
            {
                "topic": part.position.topic,
                "partition": part.position.partition,
                "next_offset": part.stored.next_offset,
                "lag": None if lags is None else lags.get(part.position),
                "event_time_max": part.event_time_max and str(part.event_time_max),
                "watermark": part.watermark and str(part.watermark),
                "clock": part.clock.value,
            }
            for part in found.partitions
        ],
        "last_batch": found.last_batch and asdict(found.last_batch),
        "last_sequence": found.last_sequence,
        "visible_through": found.visible_through,
        "driver": found.driver and asdict(found.driver),
        "totals": asdict(found.totals),
        "windows": [asdict(window) for window in found.windows],
        "catalog_ids": found.catalog_ids,
        "pause": found.pause and asdict(found.pause),
        "drain": found.drain and asdict(found.drain),
        "databases": [asdict(database) for database in found.databases],
    }


def _held_json(found: HeldBack) -> dict[str, object]:
    return {
        "topic": found.place.topic,
        "partition": found.place.partition,
        "stable_offset": found.stable_offset,
        "offsets": found.offsets,
        "transactions": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "began_at": one.began_at.isoformat(),
            }
            for one in found.transactions
        ],
    }


def _say_status(found: Status, lags: Mapping[TopicPartition, int] | None) -> None:
    total = None if lags is None else sum(lags.values())
    lag = "unknown" if total is None else f"{total:,} offsets"
    say(f"Pipeline {found.pipeline}: {found.state(total).value}, lag {lag}")
    say_table(("what", "value"), _figures(found))
    places = {part.position for part in found.partitions} | set(lags or {})
    stored = {part.position: part for part in found.partitions}
    say_table(
        ("partition", "next offset", "lag", "newest event", "watermark", "clock"),
        [
            (
                place,
                *_partition_row(
                    stored.get(place),
                    "unknown" if lags is None else lags.get(place, "gone"),
                ),
            )
            for place in sorted(places)
        ],
    )
    if found.databases:
        say_table(
            ("database", "in doubt", "oldest", "prepared", "oldest", "trouble"),
            [_database_row(database) for database in found.databases],
        )


def _say_gauges(committed: CommittedFigures, gauges: KeptGauges | None) -> None:
    rows = [
        ("latency, median", _seconds(committed.latency_p50_s)),
        ("latency, 95 %", _seconds(committed.latency_p95_s)),
        ("latency, 99 %", _seconds(committed.latency_p99_s)),
    ]
    if gauges is not None:
        rows += [
            ("oldest unread", _seconds(gauges.unread_s)),
            ("retention headroom", _seconds(gauges.headroom_s)),
            ("state", f"{gauges.home.state_bytes:,} bytes"),
            ("as of", str(gauges.at)),
        ]
    say_table(("last minute", "value"), rows)


def _say_custom(found: CustomFigures) -> None:
    rows = [(name, f"{amount:,g}", "", "") for name, amount in found.counts.items()]
    rows += [
        (name, f"{one.count:,} values", f"{one.p50:,g}", f"{one.p95:,g}")
        for name, one in found.distributions.items()
    ]
    if rows:
        say_table((f"last {_NEWEST} batches", "reported", "median", "95 %"), rows)


def _say_hot_keys(found: tuple[HotKey, ...]) -> None:
    if found:
        say_table(
            ("output", "hot key", "events", "share"),
            [(o.output, o.key, f"{o.events:,}", f"{o.share:.1%}") for o in found],
        )


def _say_unnamed(found: tuple[UnnamedField, ...]) -> None:
    from tallyweir.services.operate.pipeline_json import line_to_add

    if found:
        columns = (
            "not named in fields",
            "records",
            "since",
            "to read it, add to fields",
        )
        rows = [
            (
                o.path,
                f"{o.records:,}",
                f"{o.since:%Y-%m-%d %H:%M}",
                line_to_add(o.path),
            )
            for o in found
        ]
        say_table(columns, rows)


def _say_bottleneck(found: Bottleneck | None) -> None:
    if found is not None:
        say(f"Bottleneck: {found.cause}, {found.share:.0%}. {found.saw} {found.remedy}")


def _partition_row(part: PartitionStatus | None, lag: int | str) -> tuple[object, ...]:
    if part is None:
        return ("-", lag, "-", "-", "-")
    return (
        part.stored.next_offset,
        lag,
        _shown(part.event_time_max),
        _shown(part.watermark),
        part.clock.value,
    )


def _database_row(database: DatabaseStatus) -> tuple[object, ...]:
    return (
        database.database,
        database.in_doubt,
        _seconds(database.oldest_in_doubt_s),
        "unknown" if database.prepared is None else database.prepared,
        _seconds(database.oldest_prepared_s),
        database.trouble or "-",
    )


def _figures(found: Status) -> list[tuple[str, str]]:
    totals, batch, driver = found.totals, found.last_batch, found.driver
    figures = [
        ("guarantee", found.guarantee.value),
        ("watermark", _shown(found.watermark)),
        ("freshness", _seconds(found.freshness_s)),
        ("last commit", f"{_seconds(found.since_commit_s)} ago" if batch else "never"),
        (
            "last batch",
            f"{batch.sequence}, {batch.read:,} read, {batch.committed:,} committed"
            if batch
            else "-",
        ),
        ("visible through", f"batch {found.visible_through} of {found.last_sequence}"),
        ("last minute", f"{found.minute_rate:,.0f} events/s"),
        (
            "last 10 batches",
            "-"
            if found.batches_rate is None
            else f"{found.batches_rate:,.0f} events/s",
        ),
        (
            "driver",
            f"epoch {driver.epoch} on {driver.host}, process {driver.process_id}, "
            f"{'connected' if driver.is_connected else 'not connected'}; "
            f"{totals.drivers:,} epochs claimed"
            if driver
            else "none yet",
        ),
        (
            "events",
            (
                f"{totals.read:,} read: {totals.committed:,} committed, "
                f"{totals.duplicate:,} duplicate, {totals.dead:,} dead, "
                f"{totals.late:,} late, {totals.expired:,} expired, "
                f"{totals.filtered:,} filtered"
            ),
        ),
    ]
    figures += [
        (f"open in {window.table}", _groups(window.open_groups))
        for window in found.windows
    ]
    held = found.pause or found.drain
    if held is not None:
        figures.insert(0, ("held", held.told()))
    if found.catalog_ids is not None:
        figures.append(("IDs remembered", f"{found.catalog_ids:,}"))
    return figures


def _groups(groups: int | None) -> str:
    return "unknown" if groups is None else f"{groups:,} groups"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
