"""Contracts between producers and pipelines, and pipelines as users write them.

This package knows no Kafka, Spark or Postgres, and it alone uses fastavro. Of
``sinks`` it knows the protocol only.

- ``contract``: load a contract by name or path; find the versions it can read.
- ``event_contracts``: the contracts of one pipeline's events, and their decoder.
- ``schema_tree``: the types that fields have, in every format.
- ``formats``: how values are written; a format is a module behind one interface.
- ``codec``: single records to payloads, and strictly back.
- ``record_check``: whether a record fits its contract.
- ``pipeline``: the model of a pipeline, its files and its definition for the ledger.
"""
