"""``python -m integration_tests.harness.forgetful_driver``: merges no windows once.

A driver with a defect: of its second batch it shows nothing in window tables.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

from tallyweir.sinks.postgres.outputs.window_merge import WindowMerge
from tallyweir.spark_jobs.__main__ import main

_FORGOTTEN = 2


def _forget(merge: WindowMerge, **how: Any) -> None:  # noqa: ANN401 - as it takes it
    if merge._values["sequence"] != _FORGOTTEN:
        _run(merge, **how)


_run = WindowMerge.run

if __name__ == "__main__":
    with mock.patch.object(WindowMerge, "run", _forget):
        sys.exit(main())
