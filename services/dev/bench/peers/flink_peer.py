"""The peer that runs on Apache Flink: the XA sink of its JDBC connector.

The program is in Java, because Flink's XA sink is. It is compiled when it is needed.
"""

from __future__ import annotations

import os
import subprocess
from enum import StrEnum
from pathlib import Path

from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.bench.peers.peer_process import (
    create_peer_table,
    jdbc_url,
    login_environment,
    run_peer_process,
)
from tallyweir.services.dev.bench.world.bench_world import TOPIC, incomplete_run
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch
from tallyweir.services.local.embedded.jars import bench_jars, flink_jars
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.protocol.errors import ConfigurationError

_PROGRAM = Path(__file__).with_name("flink") / "FlinkPeer.java"
_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
#: Flink's serializers look into classes of these packages, as its documentation says.
_OPENED_PACKAGES = ("java.lang", "java.time", "java.util", "java.util.concurrent")
#: Enough for the IDs of eight million events in maps of objects.
_HEAP = "6g"


class FlinkDeduplication(StrEnum):
    """Where Flink keeps the IDs that it has seen."""

    NONE = "none"
    HEAP = "heap"
    ROCKSDB = "rocksdb"


def run_flink_peer(
    endpoints: Endpoints, deduplication: FlinkDeduplication, table: str, *, events: int
) -> list[MeasuredBatch]:
    """Let Flink read the topic, which holds ``events``, to its end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: Flink failed.
    """
    directory = state_directory() / "bench" / f"flink-{table}"
    directory.mkdir()
    class_path = [directory, *flink_jars(), *bench_jars()]
    _compile(class_path, directory)
    contract = directory / "contract.avsc"
    contract.write_text(load_contract("page_view.v1").text)
    create_peer_table(endpoints.home_dsn, table)
    command = [
        str(find_java()),
        *(f"-Xmx{_HEAP}", "-XX:+UseParallelGC"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *(
            f"--add-opens=java.base/{package}=ALL-UNNAMED"
            for package in _OPENED_PACKAGES
        ),
        *("-classpath", _joined(class_path), _PROGRAM.stem),
        *(endpoints.kafka_bootstrap, TOPIC, str(contract)),
        *(jdbc_url(endpoints.home_dsn), table, str(directory / "checkpoints")),
        deduplication,
    ]
    environment = os.environ | login_environment(endpoints.home_dsn)
    return run_peer_process(command, environment, events=events)


def check_java_compiler() -> None:
    """Check, before minutes of measuring, that Java can compile the peer's program.

    Raises:
        ConfigurationError: ``JAVA_COMPILER_MISSING``.
    """
    java = str(find_java())
    modules = subprocess.run(
        [java, "--list-modules"], capture_output=True, text=True, check=True
    ).stdout
    if "jdk.compiler@" not in modules:
        raise ConfigurationError(
            "JAVA_COMPILER_MISSING",
            saw=f"{java} comes without a compiler.",
            why="The benchmark compiles the program that runs on Flink.",
            fix="Install a full JDK (on Debian: apt-get install "
            "openjdk-17-jdk-headless), or leave out the peers with --no-peers.",
        )


def _compile(class_path: list[Path], directory: Path) -> None:
    compiled = subprocess.run(
        [
            *(str(find_java()), "--module", _COMPILER, "-nowarn", "-d", str(directory)),
            *("-classpath", _joined(class_path), str(_PROGRAM)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if compiled.returncode:
        raise incomplete_run(
            f"{_PROGRAM.name} does not compile: {compiled.stderr[:2_000]}",
            fix="Report this with the version of Java.",
        )


def _joined(class_path: list[Path]) -> str:
    return ":".join(map(str, class_path))
