"""What the measures of batches say: where the time goes, and what is to be done.

Pure: it is given measures and facts, and asks nobody. ``docs/status.md`` has the
formulas.
"""

from __future__ import annotations
