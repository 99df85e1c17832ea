"""Fakes of the protocol's ports, and the suite that compares them with Postgres.

``MemoryHome`` and ``MemoryStage`` let a driver's logic run in one process without a
server. They are *verified* fakes: ``conformance.CASES`` runs on them and on the
Postgres adapter alike, so tests can rely on them.
"""
