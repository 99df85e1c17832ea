"""The resolver: a service that does the work that needs no driver.

It finishes the branches that a crash has left prepared, and merges seen IDs.
"""

from __future__ import annotations
