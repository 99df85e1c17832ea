"""Whole histories of the protocol on the fakes, each decided by its seed alone.

The production ``Coordinator``, ``Publisher`` and ``resolve`` work on a home database
and two participants. Two drivers and a resolver take turns, also within each other's
steps. At both sides of every fault point, and between any two calls to a database, the
seed may inject a fault. Each history draws the kinds of its faults and their
frequencies, so that rare combinations occur too.

The simulation checks the databases after every step. At the end the faults cease, and a
fresh driver and the resolver must bring every record to its place, once.

Run many histories, or one of them with its trace::

    python -m tallyweir.sinks.testing.simulation --histories 1000000
    python -m tallyweir.sinks.testing.simulation 4711
"""
