"""What the measures of batches say: where the time goes, and what to do about it.

This package is pure: callers pass it measures and facts. ``docs/status.md`` has the
formulas.
"""

from __future__ import annotations
