"""Events per second by the format of payloads, deduplicated into Postgres.

The same page views lie in a topic for each format. The formats run in turns, because
the speed of a machine varies; the figures are medians. Peers read the documents of
JSON once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from tallyweir.schemas.contract import REGISTRY, load_contract
from tallyweir.schemas.pipeline.events.source import AVRO, JSON, PROTOBUF
from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
from tallyweir.services.dev.bench.peers.peer_runs import (
    FlinkDeduplication,
    Peer,
    PeerQuery,
    check_java_compiler,
    measure_peers,
    run_flink_peer,
    run_spark_peer,
)
from tallyweir.services.dev.bench.world.bench_world import (
    PAGE_VIEWS,
    TOPIC,
    BenchPipeline,
    Rounds,
    bench_servers,
    produce_rounds,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    Rates,
    measure_table,
    median_rates,
    warm_up,
)
from tallyweir.services.local.datasets.page_views import CONTRACT, MESSAGE
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.endpoints import Endpoints

#: An odd number, so that one of the turns is the median.
_TURNS = 3
_ROUNDS = 4

#: What the source of each format has instead of the contract's name. To measure
#: another format, add its line.
FORMATS: Mapping[str, Mapping[str, object]] = {
    AVRO: {"schema": CONTRACT},
    JSON: {
        "format": JSON,
        "fields": {
            "event_id": "text not null",
            "user_id": "bigint not null",
            "page": "text not null",
            "country": "text not null",
            "viewed_at": "timestamptz not null",
            "value": "double precision not null",
        },
    },
    PROTOBUF: {"format": PROTOBUF, "schema": MESSAGE},
    REGISTRY: {"schema": REGISTRY},
}


_JSON_TOPIC = f"{TOPIC}-{JSON}"
_PEERS: Mapping[str, Peer] = {
    "flink_xa_without_ids": Peer(
        run=partial(
            run_flink_peer,
            deduplication=FlinkDeduplication.NONE,
            topic=_JSON_TOPIC,
            payloads=JSON,
        ),
        guarantee="exactly once while Flink's checkpoints last; by offset",
        deduplicates=False,
    ),
    "flink_xa_rocksdb": Peer(
        run=partial(
            run_flink_peer,
            deduplication=FlinkDeduplication.ROCKSDB,
            topic=_JSON_TOPIC,
            payloads=JSON,
        ),
        guarantee="exactly once while Flink's checkpoints last; IDs in RocksDB",
    ),
    "spark_jdbc_rocksdb": Peer(
        run=partial(
            run_spark_peer, query=PeerQuery.ROWS, topics=[_JSON_TOPIC], payloads=JSON
        ),
        guarantee="at least once; IDs in RocksDB",
    ),
}


def measure(
    *, events: int, seed: int, with_peers: bool, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure each format over four rounds of ``events``, in turns, then the peers.

    Raises:
        ConfigurationError: A peer cannot run here.
        FatalError: A run did not end, or its table holds the wrong rows. If a peer
            fails so, it has no figure, and is among the failed ones.
    """
    if with_peers:
        check_java_compiler()
    turns: list[dict[str, Rates]] = []
    with bench_servers() as endpoints, _started_registry() as registry:
        for name in FORMATS:
            if name == REGISTRY:
                contract = _registered(registry)
            else:
                (contract,) = load_pipeline(_pipeline(name, name).file).source.schemas
            rounds = _produce(
                endpoints, name, contract, events=events, seed=seed, say=say
            )
        warm_up(endpoints, events=rounds.total, say=say, topic=f"{TOPIC}-{AVRO}")
        for number in range(1, _TURNS + 1):
            turn: dict[str, Rates] = {}
            for name in FORMATS:
                say(f"running {name}, {number} of {_TURNS}")
                settings = registry.environment if name == REGISTRY else {}
                pipeline = _pipeline(name, f"{name}_{number}", settings)
                turn[name] = measure_table(rounds, pipeline, rows=rounds.distinct)
                say(f"{name}: {turn[name]}")
            turns.append(turn)
        peers, failed = measure_peers(rounds, _PEERS if with_peers else {}, say)
    return {
        **figures_of(turns, peers),
        "verified": True,
        "failed": failed,
        "events": rounds.total,
        "seed": seed,
    }


@contextmanager
def _started_registry() -> Iterator[Apicurio]:
    registry = Apicurio(state_directory() / "bench" / "registry")
    try:
        registry.start()
        yield registry
    finally:
        registry.stop()


def _registered(registry: Apicurio) -> str:
    """Register the schema of page views; return a contract's file that has its id."""
    schema = json.loads(load_contract(CONTRACT).path.read_text("utf-8"))
    subject = f"{TOPIC}-{REGISTRY}-value"
    (schema_id,) = registry.register(subject, [json.dumps(schema)])
    file: Path = state_directory() / "bench" / f"{CONTRACT}.avsc"
    file.write_text(json.dumps(schema | {"schema_id": schema_id}), "utf-8")
    return str(file)


def _pipeline(
    name: str, variant: str, settings: Mapping[str, str] | None = None
) -> BenchPipeline:
    """Write the pipeline of a format."""
    times = {"event_id": "event_id", "event_time": "viewed_at"}
    source = {**FORMATS[name], **times, "watermark_delay": "2 minutes"}
    keys = {"source": source}
    return varied(
        PAGE_VIEWS, variant, keys=keys, topic=f"{TOPIC}-{name}", settings=settings
    )


def _produce(  # noqa: PLR0913 - a run of a benchmark has these
    endpoints: Endpoints,
    name: str,
    contract: str,
    *,
    events: int,
    seed: int,
    say: Callable[[str], None],
) -> Rounds:
    say(f"format {name}")
    return produce_rounds(
        endpoints,
        events=events,
        rounds=_ROUNDS,
        seed=seed,
        say=say,
        topics=[f"{TOPIC}-{name}"],
        contract=contract,
    )


def figures_of(
    turns: Sequence[Mapping[str, Rates]], peers: Mapping[str, Rates]
) -> dict[str, object]:
    """Return the medians and the runs of each format, and the ratios.

    A ratio to Avro is the median of those within each turn, and a ratio to a peer that
    of JSON's median.
    """
    formats: dict[str, object] = {}
    middles: dict[str, Rates] = {}
    for name in turns[0]:
        runs = [turn[name] for turn in turns]
        middles[name] = median_rates(runs)
        pairs = [(turn[name], turn[AVRO]) for turn in turns]
        formats[name] = {
            **middles[name].figures(),
            "runs": [one.figures() for one in runs],
            "ratio": round(median(one.warm / avro.warm for one, avro in pairs), 2),
            "cold_ratio": round(median(one.cold / avro.cold for one, avro in pairs), 2),
        }
    return {
        "formats": formats,
        "peers": {
            name: {
                **one.figures(),
                "ratio": round(middles[JSON].warm / one.warm, 2),
                "cold_ratio": round(middles[JSON].cold / one.cold, 2),
            }
            for name, one in peers.items()
        },
    }
