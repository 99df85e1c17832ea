"""Whole histories of the protocol on the fakes, each decided by its seed alone.

The production ``Coordinator``, ``Publisher`` and ``resolve`` work on a home database
and two that take part beside it. Two drivers and a resolver take turns, also within
each other's steps: at both sides of every fault point, and between any two calls to a
database, the seed may let something go wrong. Each history draws which kinds of
faults it knows and how frequent they are, so that rare combinations get their turn.

The databases are checked after every step. At the end the faults cease, and a fresh
driver and the resolver must bring every record to its place, once.

Run histories, as many as wanted, or one of them with its trace::

    python -m sinks.testing.simulation --histories 1000000
    python -m sinks.testing.simulation 4711
"""
