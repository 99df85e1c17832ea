"""The broker, database servers, topic and pipeline that belong to one run only.

All their files are in ``chaos`` inside of the state directory. Each database has a
server of its own, so that each can be killed alone, and a proxy through which the
drivers reach it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.services.dev.chaos.plan import HOME, ChaosPlan, EventFormat
from tallyweir.services.dev.chaos.registered_writers import RegisteredWriters
from tallyweir.services.dev.chaos.wire_proxy import WireProxy, wire_proxy
from tallyweir.services.dev.chaos.workload import PARTITIONS, SPAN_US
from tallyweir.services.dev.cleared_directory import cleared_directory
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.services.local.embedded.embedded_server import EmbeddedServer
from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    empty_directory,
)
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.services.produce.source_section import read_source_section
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.connection import pin
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE

PIPELINE = "chaos"
TOPIC = "chaos-events"
EVENTS_TABLE = "chaos_events"

_HERE = Path(__file__).parent
_CONTRACT = "chaos_event.v1.avsc"
_PIPELINE_FILE = "chaos.yaml"
_DRIVER_MEMORY = "1g"
#: What the source has, by the format of its events; columns in the contract's order.
_SOURCES = {
    EventFormat.AVRO: f"schema: {_CONTRACT}",
    EventFormat.JSON: "format: json\n  fields: {event_id: text not null, "
    "site: text not null, amount: bigint not null, "
    "happened_at: timestamptz not null, note: text not null}",
    EventFormat.REGISTRY: "schema: registry",
}
_REGISTERED = "SELECT schema_id FROM tallyweir.registered_schema"

#: Events may wait this many stages for their turn, so their times may differ as much.
_STAGES_OF_DELAY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosWorld:
    """Where one run takes place.

    Attributes:
        directory: The directory of all its files.
        kafka: The broker.
        servers: The database servers, by database name.
        proxies: The proxy in front of each server.
        pipeline_file: The pipeline file that the drivers run.
        batch_offsets_max: Most offsets that a batch may read.
        contract: The contract that the pipeline's columns are of.
        writers: The schemas of the events, if they are in a registry.
    """

    directory: Path
    kafka: EmbeddedKafka
    servers: Mapping[str, EmbeddedPostgres]
    proxies: Mapping[str, WireProxy]
    pipeline_file: Path
    batch_offsets_max: int
    contract: Contract
    writers: RegisteredWriters | None = None

    @property
    def participants(self) -> dict[str, str]:
        """Connection strings of the participants past the proxies, by name."""
        return {name: one.dsn for name, one in self.servers.items() if name != HOME}

    def writer_at(self, share: float) -> Contract:
        """Return the contract of what is sent after this share of the run's events."""
        return self.contract if self.writers is None else self.writers.at(share)

    def connect(self, database: str = HOME) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect past the proxy, in autocommit; errors are psycopg's own."""
        connection = psycopg.connect(
            self.servers[database].dsn,
            autocommit=True,
            connect_timeout=5,
            application_name="tallyweir chaos",
        )
        pin(connection)
        return connection

    def driver_environment(self, state: Path) -> dict[str, str]:
        """Return the environment of a driver that keeps its files in ``state``."""
        registry = {} if self.writers is None else self.writers.registry.environment
        dsns = {name: proxy.dsn for name, proxy in self.proxies.items()}
        return self._environment(state, dsns) | registry

    @property
    def replay_environment(self) -> dict[str, str]:
        """The environment of a replay: past the proxies, and without a registry."""
        dsns = {name: server.dsn for name, server in self.servers.items()}
        return self._environment(self.directory / "replay", dsns)

    def _environment(self, state: Path, dsns: Mapping[str, str]) -> dict[str, str]:
        endpoints = Endpoints(kafka_bootstrap=self.kafka.bootstrap, home_dsn=dsns[HOME])
        participants = {name: dsn for name, dsn in dsns.items() if name != HOME}
        environment = child_environment(endpoints) | {
            STATE_DIRECTORY_VARIABLE: str(state),
            "TALLYWEIR_BATCH_OFFSETS_MAX": str(self.batch_offsets_max),
            "TALLYWEIR_DRIVER_MEMORY": _DRIVER_MEMORY,
        }
        if participants:
            environment[DATABASES_VARIABLE] = json.dumps(participants)
        return environment


@contextmanager
def chaos_world(plan: ChaosPlan, *, keep: bool) -> Iterator[ChaosWorld]:
    """Make a fresh world; end what an earlier run left running.

    Args:
        plan: The plan, which says how many databases there are.
        keep: Whether the files stay. Servers stop in any case.

    Raises:
        RetryableError: A server did not start.

    Crash:
        A run that is killed leaves its servers and drivers running; the next run ends
        them, and deletes their data.
    """
    with cleared_directory("chaos") as directory, ExitStack() as stack:
        if not keep:
            stack.callback(empty_directory, directory)
        pipeline_file = directory / _PIPELINE_FILE
        kafka = EmbeddedKafka(directory / "kafka")
        servers = {
            name: EmbeddedPostgres(directory / f"postgres-{name}")
            for name in plan.options.database_names
        }
        everything: list[EmbeddedServer] = [kafka, *servers.values()]
        has_registry = plan.options.event_format is EventFormat.REGISTRY
        registry = Apicurio(directory / "registry")
        if has_registry:
            everything.append(registry)
        for server in everything:
            stack.callback(server.stop)
        with ThreadPoolExecutor() as starters:
            for start in [starters.submit(server.start) for server in everything]:
                start.result()
        ensure_topic(kafka.bootstrap, TOPIC, partitions=PARTITIONS)
        migrate(servers[HOME].dsn)
        _write_pipeline(pipeline_file, plan)
        proxies = {
            name: stack.enter_context(wire_proxy(server.dsn))
            for name, server in servers.items()
        }
        world = ChaosWorld(
            directory=directory,
            kafka=kafka,
            servers=servers,
            proxies=proxies,
            pipeline_file=pipeline_file,
            batch_offsets_max=plan.batch_offsets_max,
            contract=_contract(pipeline_file, plan.options.event_format),
        )
        if has_registry:
            world = replace(world, writers=_registered_writers(registry, world, plan))
        yield world


def _contract(pipeline_file: Path, event_format: EventFormat) -> Contract:
    if event_format is EventFormat.REGISTRY:
        return load_contract(_CONTRACT, _HERE)
    (reference,) = read_source_section(pipeline_file).schemas
    return load_contract(reference, pipeline_file)


def _registered_writers(
    registry: Apicurio, world: ChaosWorld, plan: ChaosPlan
) -> RegisteredWriters:
    def read_kept() -> set[int]:
        with world.connect() as home:
            return {schema_id for (schema_id,) in home.execute(_REGISTERED)}

    return RegisteredWriters(
        registry,
        subject=f"{TOPIC}-value",
        contract_file=_HERE / _CONTRACT,
        folder=world.directory / "writers",
        count=plan.stages,
        read_kept=read_kept,
    )


def _write_pipeline(path: Path, plan: ChaosPlan) -> None:
    shutil.copy(_HERE / _CONTRACT, path.with_name(_CONTRACT))
    stage_us = SPAN_US * plan.stage_records / max(1, plan.records)
    databases = ", ".join(plan.options.database_names)
    sharded = f", database: [{databases}], shard_by: [event_id]"
    text = (_HERE / "pipeline.yaml").read_text("utf-8")
    path.write_text(
        text.format(
            contract=_SOURCES[plan.options.event_format],
            # A window must close only when no more events for it can arrive.
            watermark_delay_s=3_600 + math.ceil(_STAGES_OF_DELAY * stage_us / 1e6),
            append="{table: "
            + EVENTS_TABLE
            + (sharded if plan.options.databases > 1 else "")
            + "}",
        ),
        "utf-8",
    )
