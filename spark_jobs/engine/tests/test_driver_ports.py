"""What a stranger on the machine sends to a local driver's ports is not read."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

# In a process of its own, because PySpark leaves its sockets to the collector.
_PROGRAM = """
import json, sys
from pathlib import Path
import psutil
from pyspark.sql.functions import pandas_udf
from tallyweir.spark_jobs.engine.spark_session import start_spark_session
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings

spark = start_spark_session(
    DriverSettings(
        kafka_bootstrap="", home_dsn="", databases={}, spark_master="local[2]",
        spark_jars="", class_archive=None, state_directory=Path(sys.argv[1]),
        batch_offsets_max=1, driver_memory="512m",
    ),
    name="ports",
)
shuffled = spark.range(1000).repartition(3)
doubled = shuffled.mapInArrow(lambda batches: batches, "id long").count()
this = psutil.Process()
listening = {
    connection.laddr
    for process in [this, *this.children(recursive=True)]
    for connection in process.net_connections("inet")
    if connection.status == psutil.CONN_LISTEN
}
print(json.dumps({
    "rows": doubled,
    "rpc": int(spark.conf.get("spark.driver.port")),
    "blocks": spark.sparkContext._jsc.sc().env().blockManager()
        .blockManagerId().port(),
    "listening": sorted(listening),
}), flush=True)
sys.stdin.read()
"""


def _ask(port: int) -> bytes:
    """Send a request with a serialised object, and return the answer, if any."""
    stranger = b"\xac\xed\x00\x05sr\x00\x10no.such.Gadget42" + bytes(12)
    body = struct.pack(">bqi", 3, 1, len(stranger)) + stranger
    frame = struct.pack(">q", len(body) + 8) + body
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(frame)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(65_536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def test_a_strangers_object_is_not_read(tmp_path: Path) -> None:
    """Tasks and their workers know the secret, and nothing listens to the network."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        told = json.loads(driver.stdout.readline())
        answers = [_ask(told["rpc"]), _ask(told["blocks"])]
        driver.communicate("")
    assert told["rows"] == 1000
    assert all(address.endswith("127.0.0.1") for address, _ in told["listening"])
    for answer in answers:
        # Whoever deserialises says what it found there.
        assert b"StreamCorrupted" not in answer, answer
        assert b"readObject" not in answer, answer
        assert b"Gadget" not in answer, answer
        assert b"ClassNotFound" not in answer, answer
