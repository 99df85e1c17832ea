"""Batch runs: the same pipeline over files, published as one batch, once by name.

A run reads its input as partitions of a topic of its own, ``batch:NAME``; partition N
is the N-th input, and an offset is the number of a line or row in it. So the ledger,
dead letters, the conservation law, ``verify`` and ``why`` hold for it unchanged.
"""
