"""The resolver: a service that does the work that needs no driver.

It finishes the branches that a crash has left prepared, and merges seen IDs. A lost
answer to COMMIT in the home is the driver's: see ``sinks.protocol.coordinator``.
"""

from __future__ import annotations
