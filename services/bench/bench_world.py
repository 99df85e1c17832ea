"""The benchmark's own broker and database, and the events in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.datasets.page_views import read_page_views
from services.embedded.kafka import EmbeddedKafka
from services.embedded.postgres import EmbeddedPostgres
from services.embedded.state_directory import state_directory
from services.endpoints import Endpoints
from services.ingest.producer import EventProducer
from services.ingest.topics import ensure_topic

TOPIC = "bench-page-views"
TABLE = "bench_page_views"
PARTITIONS = 4
#: A run that is slower is given up.
EVENTS_PER_SECOND_MIN = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPipeline:
    """A pipeline under measurement.

    Attributes:
        name: As its file says.
        file: Its file.
        table: Where its rows go.
        databases: Where they may be beside the home, by name.
    """

    name: str
    file: Path
    table: str
    databases: Mapping[str, str] = field(default_factory=dict)


#: Deduplicated page views into one table of the home database, as the peer does.
PAGE_VIEWS = BenchPipeline(
    name="bench-page-views",
    file=Path(__file__).with_name("page-views-append.yaml"),
    table=TABLE,
)

#: Deduplicated page views counted per user and ten seconds.
WINDOWS = BenchPipeline(
    name="bench-windows",
    file=Path(__file__).with_name("page-views-windows.yaml"),
    table="bench_views_by_user",
)


@contextmanager
def bench_servers() -> Iterator[Endpoints]:
    """Start fresh servers of the benchmark's own; stop and remove them at the end."""
    directory = state_directory() / "bench"
    shutil.rmtree(directory, ignore_errors=True)
    kafka = EmbeddedKafka(directory / "kafka")
    postgres = EmbeddedPostgres(directory / "postgres")
    try:
        postgres.start()
        kafka.start()
        yield Endpoints(kafka_bootstrap=kafka.bootstrap, home_dsn=postgres.dsn)
    finally:
        kafka.stop()
        postgres.stop()
        shutil.rmtree(directory, ignore_errors=True)


def produce_page_views(
    bootstrap: str, *, events: int, duplicates: float, seed: int
) -> int:
    """Put page views into the topic; return how many different ones there are."""
    ensure_topic(bootstrap, TOPIC, partitions=PARTITIONS)
    producer = EventProducer(bootstrap)
    distinct: set[bytes] = set()
    for key, payload in read_page_views(events, duplicates, seed):
        distinct.add(key)
        producer.send(TOPIC, key=key, payload=payload)
    producer.flush()
    return len(distinct)
