"""``python -m integration_tests.harness.version_changer``: a change that dies.

It updates the pipeline of ``versioned_windows`` to its second version, or rolls it
back to its first, and is killed at one side of one fault point. It reads one JSON
object from its first argument::

    {"home": DSN, "kind": "update", "point": "version_added", "side": "before"}
"""

from __future__ import annotations

import json
import os
import signal
import sys

from integration_tests.harness.versioned_windows import SECOND, change, go_back
from sinks.faultpoints import Side, VersionPoint, arm


def main() -> None:
    """Do the change, as far as the fault lets it come."""
    orders = json.loads(sys.argv[1])
    arm(
        VersionPoint(orders["point"]),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        side=Side(orders["side"]),
    )
    if orders["kind"] == "update":
        change(orders["home"], SECOND)
    else:
        go_back(orders["home"], 1)


if __name__ == "__main__":
    main()
