"""Run with ``python -m services.cli``; the launcher does."""

from __future__ import annotations

import signal
import sys

# Ctrl-C ends a command that does not say otherwise, without a stack trace, and from
# the first moment: to import what follows takes longer than a person needs for it.
# A driver that has not begun is drained.
_INTERRUPTED = 0 if "run" in sys.argv[1:2] else 128 + signal.SIGINT
signal.signal(signal.SIGINT, lambda *_: sys.exit(_INTERRUPTED))

from services.cli.app import main  # noqa: E402 - see above

if __name__ == "__main__":
    sys.exit(main())
