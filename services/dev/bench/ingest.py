"""Single events over HTTP, compared with a producer that sends the same messages.

Both runs keep the same number of events under way and wait for the broker's report on
each before the next, on the same machine in the same minute. The difference between the
two figures is the cost of HTTP, the key, the contract and Python.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaError, Message, Producer

from schemas.codec import encode
from schemas.contract import load_contract
from services.dev.bench.http_load import event_json
from services.ingest.api_keys import make_key
from services.ingest.json_records import compile_reader
from services.ingest.kafka_sender import DELIVERY_TIMEOUT_S, producer_settings
from services.ingest.key_file import API_KEYS, KEYS_FILE_VARIABLE
from services.kafka.topics import ensure_topic
from services.local.embedded.kafka import EmbeddedKafka
from services.local.embedded.state_directory import ROOT, state_directory
from services.process.endpoints import KAFKA_VARIABLE
from services.process.hashed_secrets import add_secret
from sinks.protocol.errors import FatalError

PARTITIONS = 4
TOPIC = "bench-ingest"
WARM_UP_S = 5
_PIPELINE = f"source: {{topic: {TOPIC}, schema: page_view.v1, event_id: event_id}}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFigures:
    """The figures of the run over HTTP.

    Attributes:
        seconds: Time from each request to its answer.
        service_cpu_us: Processor time of the service per request, warm-up included.
        load_cpu_us: Processor time of the load generator per request, likewise.
    """

    seconds: list[float]
    service_cpu_us: float
    load_cpu_us: float


def measure_ingest(
    *, connections: int, seconds: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Measure the broker, then the service in front of it.

    Raises:
        FatalError: An event was refused, or the service did not start.
    """
    directory = state_directory() / "bench"
    shutil.rmtree(directory, ignore_errors=True)
    kafka = EmbeddedKafka(directory / "kafka")
    try:
        kafka.start()
        ensure_topic(kafka.bootstrap, TOPIC, partitions=PARTITIONS)
        # The producer's run comes first, and so warms up the broker for both runs.
        say(f"{connections} messages at once by the producer itself for {seconds} s")
        direct = _DirectRun(kafka.bootstrap, connections).measure(seconds)
        say(f"{connections} connections for {seconds} s")
        http = _measure_http(directory, kafka.bootstrap, connections, seconds)
    finally:
        kafka.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "requests_per_second": round(len(http.seconds) / seconds),
        **_in_milliseconds(http.seconds, ""),
        "producer_messages_per_second": round(len(direct) / seconds),
        **_in_milliseconds(direct, "producer_"),
        "ratio": round(len(http.seconds) / len(direct), 2),
        "service_cpu_us_per_request": round(http.service_cpu_us),
        "load_cpu_us_per_request": round(http.load_cpu_us),
        "connections": connections,
        "seconds": seconds,
        "load_average_1m": round(os.getloadavg()[0], 1),
    }


def _measure_http(
    directory: Path, bootstrap: str, connections: int, seconds: int
) -> HttpFigures:
    with _running_service(directory, bootstrap) as (service, port, key):
        process = psutil.Process(service.pid)
        before = process.cpu_times()
        task = {
            "host": "127.0.0.1",
            "port": port,
            "path": f"/v1/events/{TOPIC}",
            "key": key,
            "connections": connections,
            "warm_up_s": WARM_UP_S,
            "seconds": seconds,
        }
        done = subprocess.run(
            [sys.executable, "-m", "services.dev.bench.http_load"],
            input=json.dumps(task),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        after = process.cpu_times()
    found = json.loads(done.stdout)
    if found["refused"] or not found["seconds"]:
        raise FatalError(
            "BENCH_WRONG",
            saw=f"{found['refused']} of the requests were not answered 202.",
            why="A refusal costs less than an event.",
            fix="Run the service by hand to see its answers.",
        )
    # Count the requests of the warm-up too, at the rate of those measured.
    requests = len(found["seconds"]) * (seconds + WARM_UP_S) / seconds
    used = after.user + after.system - before.user - before.system
    return HttpFigures(
        seconds=found["seconds"],
        service_cpu_us=used / requests * 1e6,
        load_cpu_us=found["cpu_s"] / requests * 1e6,
    )


@contextmanager
def _running_service(
    directory: Path, bootstrap: str
) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Run the service as users do; yield its process, its port and a key."""
    pipeline = directory / "ingest.yaml"
    pipeline.write_text(_PIPELINE)
    key, text = make_key(
        producer="bench", topics=[TOPIC], id_prefix="bench:", not_after=None
    )
    add_secret(directory / "keys.json", API_KEYS, key)
    service = subprocess.Popen(
        [
            *(sys.executable, "-m", "services.cli", "ingest", str(pipeline)),
            *("--port", "0"),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            KAFKA_VARIABLE: bootstrap,
            KEYS_FILE_VARIABLE: str(directory / "keys.json"),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stderr is not None
        first = service.stderr.readline()
        if "ingest listens" not in first:
            raise FatalError(
                "BENCH_INCOMPLETE",
                saw=f"The service said {first.strip()!r} and did not listen.",
                why="A part of a run is no measurement.",
                fix="Run the service by hand to see its messages.",
            )
        yield service, int(json.loads(first)["port"]), text
    finally:
        service.terminate()
        service.communicate()


class _DirectRun:
    """Sends the next message whenever the broker reports on one.

    Args:
        bootstrap: Address of the broker.
        at_once: How many messages are under way at a time.
    """

    def __init__(self, bootstrap: str, at_once: int) -> None:
        self._producer = Producer(
            producer_settings(bootstrap, delivery_timeout_s=DELIVERY_TIMEOUT_S)
        )
        contract = load_contract("page_view.v1")
        record = compile_reader(contract)(json.loads(event_json(0, 0)))
        self._payload = encode(contract, record)
        self._at_once = at_once
        self._seconds: list[float] = []
        self._sent = 0
        self._end = 0.0

    def measure(self, seconds: int) -> list[float]:
        """Measure for ``seconds`` after a warm-up; return the time of each message."""
        for length in (WARM_UP_S, seconds):
            self._seconds = []
            self._end = time.perf_counter() + length
            for _ in range(self._at_once):
                self._send()
            while len(self._producer):
                self._producer.poll(0.1)
        return self._seconds

    def _send(self) -> None:
        self._sent += 1
        began = time.perf_counter()

        def report(error: KafkaError | None, _message: Message) -> None:
            assert error is None, "the broker takes every message"
            now = time.perf_counter()
            if now < self._end:
                self._seconds.append(now - began)
                self._send()

        self._producer.produce(
            TOPIC, self._payload, b"bench:%012d" % self._sent, on_delivery=report
        )


def _in_milliseconds(seconds: Sequence[float], prefix: str) -> dict[str, object]:
    parts = statistics.quantiles(seconds, n=100)
    return {
        f"{prefix}p50_ms": round(parts[49] * 1_000, 1),
        f"{prefix}p99_ms": round(parts[98] * 1_000, 1),
        f"{prefix}max_ms": round(max(seconds) * 1_000, 1),
    }
