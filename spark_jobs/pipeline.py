"""The names that Python pipelines import; ``schemas.pipeline`` has what they are."""

from __future__ import annotations

from tallyweir.schemas.pipeline import *  # noqa: F403 - it has exactly these names
