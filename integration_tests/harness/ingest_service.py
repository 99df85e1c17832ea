"""The ingest service as users start it, its keys, and what it put in Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx

from integration_tests.harness.written_topic import read_topic
from tallyweir.services.ingest.api_keys import API_KEYS, KEYS_FILE_VARIABLE, make_key
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.services.process.hashed_secrets import add_secret

PARTITIONS = 3
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message in Kafka."""

    key: bytes
    value: bytes
    headers: dict[str, bytes]


class IngestService:
    """One service over page views, in topics of its own.

    Args:
        directory: For its files.
        bootstrap: Of the broker.
        event_ids: ``source.event_id`` of each pipeline.
    """

    def __init__(
        self, directory: Path, bootstrap: str, event_ids: Sequence[str] = ("event_id",)
    ) -> None:
        self.bootstrap = bootstrap
        self.keys_file = directory / "keys.json"
        self.topics: list[str] = []
        self.log: list[dict[str, object]] = []
        self._files: list[Path] = []
        for number, event_id in enumerate(event_ids):
            topic = f"ingest-{uuid.uuid4().hex[:12]}"
            ensure_topic(bootstrap, topic, partitions=PARTITIONS)
            file = directory / f"pipeline-{number}.yaml"
            file.write_text(
                f"source: {{topic: {topic}, schema: page_view.v1, "
                f'event_id: "{event_id}"}}\n'
            )
            self.topics.append(topic)
            self._files.append(file)
        self.key = self.make_key("shop")

    @property
    def topic(self) -> str:
        """The topic of the first pipeline."""
        return self.topics[0]

    def make_key(self, producer: str, topics: Sequence[str] | None = None) -> str:
        """Make a key of a producer; for all topics unless some are named."""
        key, text = make_key(
            producer=producer,
            topics=topics or self.topics,
            id_prefix=f"{producer}:",
            not_after=None,
        )
        add_secret(self.keys_file, API_KEYS, key)
        return text

    def start(self) -> None:
        """Start it; returns when it is ready."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "tallyweir.services.cli", "ingest"),
                *(*map(str, self._files), "--port", "0", "--public-name", "ingest"),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "TALLYWEIR_KAFKA_BOOTSTRAP": self.bootstrap,
                KEYS_FILE_VARIABLE: str(self.keys_file),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        self._reader = threading.Thread(target=self._read_log, args=(self.process,))
        self._reader.start()
        await_true(lambda: self.logged("ingest listens") is not None, "it listens")
        entry = self.logged("ingest listens")
        assert entry is not None
        self.address = (str(entry["host"]), int(str(entry["port"])))
        await_true(lambda: self.get("/readyz").status_code == 200, "it is ready")

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """End it as a supervisor would; return its exit code."""
        self.process.terminate()
        return self._end()

    def logged(self, event: str) -> dict[str, object] | None:
        """The first log entry of that name; None if there is none yet."""
        return next((e for e in list(self.log) if e["event"] == event), None)

    def url(self, path: str) -> str:
        """Of a path of the service."""
        host, port = self.address
        return f"http://{host}:{port}{path}"

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask for a page."""
        return httpx.get(self.url(path), headers=headers, timeout=_DEADLINE_S)

    def post(
        self,
        body: object,
        *,
        topic: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send a body, as JSON unless it is bytes or the headers say otherwise."""
        return httpx.post(
            self.url(f"/v1/events/{topic or self.topic}"),
            content=body if isinstance(body, bytes) else json.dumps(body),
            headers={
                "authorization": f"Bearer {key or self.key}",
                "content-type": "application/json",
                **(headers or {}),
            },
            timeout=_DEADLINE_S,
        )

    def _end(self) -> int:
        code = self.process.wait(timeout=_DEADLINE_S * 2)
        self._reader.join()
        return code

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"event": line})
        process.stderr.close()


def await_true(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


def page_view(event_id: str, **fields: object) -> dict[str, object]:
    """A good event."""
    return {
        "event_id": event_id,
        "user_id": 1,
        "page": "/",
        "country": "DE",
        "viewed_at": "2026-11-21T10:15:00Z",
        "value": 1.5,
        **fields,
    }


def places(response: httpx.Response) -> list[tuple[int, int]]:
    """Where an answer says that events are."""
    return [
        (entry["partition"], entry["offset"])
        for entry in response.json()["events"]
        if entry["status"] == 202
    ]


def read_stored(bootstrap: str, topic: str) -> dict[tuple[int, int], StoredMessage]:
    """Everything in a topic, by partition and offset."""
    stored: dict[tuple[int, int], StoredMessage] = {}
    for message in read_topic(bootstrap, topic):
        headers = cast("list[tuple[str, bytes]]", message.headers() or [])
        assert len({name for name, _ in headers}) == len(headers)
        stored[message.partition(), message.offset()] = StoredMessage(  # type: ignore[index]  # a message has a place
            key=message.key(),  # type: ignore[arg-type]  # ours have one
            value=message.value(),  # type: ignore[arg-type]  # as above
            headers=dict(headers),
        )
    return stored
