"""Acts on a steered pipeline, as a process that dies at one point of them.

``python -m integration_tests.harness.steered_acts`` reads a JSON object from its first
argument; the act dies when it reaches that side of the point for that time::

    {"home": DSN, "act": "restore", "log": [1, 2], "time": 1,
     "point": "act_noted", "side": "before"}
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

import psycopg
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import PIPELINE, TP
from integration_tests.harness.steered_pipeline import (
    LAYOUTS,
    broker_of,
    fingerprint_of,
)
from integration_tests.harness.steered_world import FORK, SteeredWorld
from tallyweir.sinks.faultpoints import ActPoint, Side, arm
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.versions.version_claim import describe_layout

Connection = psycopg.Connection[TupleRow]
Act = Callable[[Connection, Sequence[int]], object]

SNAPSHOT = "amid"
#: Who is erased.
ERASED = 3
_REASON = "a test"


def _request(kind: str) -> steering.ActRequest:
    return steering.ActRequest(pipeline=PIPELINE, kind=kind, reason=_REASON)


def _restore(home: Connection, log: Sequence[int]) -> object:
    broker = broker_of(log)
    return steering.restore(home, PIPELINE, SNAPSHOT, broker, reason=_REASON)


def _reset(home: Connection, log: Sequence[int]) -> object:
    broker = broker_of(log)
    return steering.reset_offsets(home, PIPELINE, {TP: 2}, broker, reason=_REASON)


def _erase(home: Connection, _log: Sequence[int]) -> object:
    request = steering.ErasureRequest(act=_request("erase"), ids=(str(ERASED),))
    return steering.erase(home, request, _fingerprints)


def _fingerprints(_key: bytes, event_id: str) -> tuple[bytes, ...]:
    words = fingerprint_of(int(event_id))
    return (b"".join(word.to_bytes(8, "big") for word in words),)


def _pause(home: Connection, _log: Sequence[int]) -> object:
    return steering.pause(home, PIPELINE, reason=_REASON)


def _fork(home: Connection, _log: Sequence[int]) -> object:
    return steering.fork(home, _request("fork"), FORK)


def _switch(home: Connection, _log: Sequence[int]) -> object:
    return steering.switch(home, _request("switch"), FORK)


def _discard(home: Connection, _log: Sequence[int]) -> object:
    request = steering.ActRequest(pipeline=FORK, kind="discard", reason=_REASON)
    return steering.discard(home, request)


def _update(home: Connection, _log: Sequence[int]) -> object:
    change = steering.ChangeRequest(pipeline=PIPELINE, reason=_REASON)
    return steering.update(home, change, describe_layout(LAYOUTS[1]))


def _roll_back(home: Connection, _log: Sequence[int]) -> object:
    change = steering.ChangeRequest(pipeline=PIPELINE, reason=_REASON)
    return steering.rollback(home, change, 1)


ACTS: Mapping[str, Act] = {
    "restore": _restore,
    "reset": _reset,
    "erase": _erase,
    "pause": _pause,
    "fork": _fork,
    "switch": _switch,
    "discard": _discard,
    "update": _update,
    "rollback": _roll_back,
}


def prepare(world: SteeredWorld, act: str) -> None:
    """Let a pipeline publish, and do what must have been done before an act.

    The topic is then read up to the twelfth record.
    """
    world.first.claim(0)
    for _ in range(2):
        _publish(world)
    if act == "restore":
        world.act(
            lambda home: steering.take_snapshot(home, PIPELINE, SNAPSHOT, reason="t"),
            fences=(),
        )
    if act in {"switch", "discard"}:
        world.act(lambda home: _fork(home, ()), fences=())
    else:
        _publish(world)
    if act == "rollback":
        world.act(lambda home: _update(home, ()))
        world.first.model.change_version()
    world.first.leave(0)


def _publish(world: SteeredWorld) -> None:
    """Four records; the topic has them already."""
    world.first.stage(0, [0] * 4)
    world.first.publish(0)


def main() -> None:
    """Do the act, as far as the fault lets it come."""
    orders = json.loads(sys.argv[1])
    left = orders["time"]

    def die() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    arm(ActPoint(orders["point"]), die, side=Side(orders["side"]))
    with psycopg.connect(orders["home"]) as home:
        ACTS[orders["act"]](home, orders["log"])


if __name__ == "__main__":
    main()
