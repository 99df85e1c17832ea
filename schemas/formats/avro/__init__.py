"""Avro values in any framing; ``avro_format`` is the format.

- ``safety``: refuses a schema that could kill a decoder.
- ``column_decoder``: a batch of payloads to columns, as strictly as ``avro_format``
  decodes one.
- ``compatibility``: whether a reader of one version can read data of another.
- ``avro_file``: the records of Avro object container files.
- ``debezium_avro``: Debezium's changes, as a format; ``debezium_schema`` has their
  columns, ``debezium_decoder`` decodes batches.
"""
