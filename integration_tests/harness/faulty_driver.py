"""``python -m integration_tests.harness.faulty_driver``: a driver with a fault in it.

With ``--run`` it is a batch run.

``TALLYWEIR_TEST_FAULT=after:voted:2:SIGKILL`` sends the signal to the driver and its
JVM when it reaches that side of that fault point for the second time.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count

from tallyweir.sinks.faultpoints import DrainPoint, FaultPoint, Side, arm
from tallyweir.spark_jobs.__main__ import main as run_driver
from tallyweir.spark_jobs.batch.__main__ import main as do_batch_run

FAULT_VARIABLE = "TALLYWEIR_TEST_FAULT"
_POINTS = {point.value: point for kind in (FaultPoint, DrainPoint) for point in kind}


def _arm(fault: str) -> None:
    side, point, occurrence, name = fault.split(":")
    reached = count(1)

    def act() -> None:
        if next(reached) == int(occurrence):
            os.killpg(0, signal.Signals[name])

    arm(_POINTS[point], act, side=Side(side))


if __name__ == "__main__":
    _arm(os.environ[FAULT_VARIABLE])
    sys.exit(do_batch_run() if "--run" in sys.argv else run_driver())
