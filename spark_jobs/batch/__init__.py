"""Batch runs: a pipeline over bounded input, published as one batch, once by name.

A run reads its input as partitions of its own topic, ``batch:NAME``. For files,
partition N is the N-th file, and an offset is the number of a line or row in it. So the
ledger, dead letters, the conservation law, ``verify`` and ``why`` work for it
unchanged.
"""
