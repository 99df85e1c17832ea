"""Contracts between producers and pipelines, and pipelines as users write them.

This package knows no Kafka, Spark or Postgres, and it alone uses fastavro. Of
``sinks`` it knows the protocol only.

- ``contract``: load a contract by name or path; find the versions it can read.
- ``event_contracts``: the contracts of one pipeline's events, and their columns.
- ``safety``: refuse contracts whose payloads could kill a decoder.
- ``wire_format``: the Confluent frame around an Avro body.
- ``codec``: records to framed bytes, and strictly back.
- ``column_decoder``: framed bytes to columns, a batch at a time and as strictly.
- ``compatibility``: whether a reader of one version can read data of another.
- ``pipeline``: the model of a pipeline, its files and its definition for the ledger.
"""
