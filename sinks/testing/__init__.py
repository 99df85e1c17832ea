"""Fakes of the protocol's ports, and the suite that holds them to their originals.

``MemoryHome`` and ``MemoryStage`` let a driver's logic run in one process without a
server. They are *verified* fakes: ``conformance.CASES`` runs on them and on the
Postgres adapter alike, so a test that trusts the fake may trust it.
"""
