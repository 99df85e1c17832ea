"""The resolver: a service that does what needs no driver, behind the batches' backs.

It finishes the branches that a crash has left prepared, and merges seen IDs.
"""

from __future__ import annotations
