"""Run with ``python -m services.cli``; the launcher does."""

from __future__ import annotations

import sys

from services.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
