"""Entry point of ``python -m tallyweir.services.cli``, which the launcher runs."""

from __future__ import annotations

import signal
import sys

# By default, Ctrl-C ends a command without a stack trace, and it does so from the
# start: the imports below take long enough for a user to press it. A driver that has
# not begun ends with exit code 0, as if it had been drained.
_INTERRUPTED = 0 if "run" in sys.argv[1:2] else 128 + signal.SIGINT
signal.signal(signal.SIGINT, lambda *_: sys.exit(_INTERRUPTED))

from tallyweir.services.cli.app import main  # noqa: E402 - see above

if __name__ == "__main__":
    sys.exit(main())
