"""``python -m integration_tests.harness.line_driver``: a driver that knows ``Lines``.

With ``--run`` it is a batch run.
"""

from __future__ import annotations

import sys

from integration_tests.harness.line_format import Lines
from tallyweir.schemas.formats.known_formats import FORMATS
from tallyweir.spark_jobs.__main__ import main as run_driver
from tallyweir.spark_jobs.batch.__main__ import main as do_batch_run

if __name__ == "__main__":
    FORMATS[Lines.suffix] = Lines()
    sys.exit(do_batch_run() if "--run" in sys.argv else run_driver())
