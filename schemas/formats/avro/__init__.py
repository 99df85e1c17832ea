"""Avro values with Confluent's header in front; ``avro_format`` is the format.

- ``safety``: refuses a schema that could kill a decoder.
- ``wire_format``: the header around an Avro body.
- ``column_decoder``: a batch of payloads to columns, as strictly as ``avro_format``
  decodes one.
- ``compatibility``: whether a reader of one version can read data of another.
- ``avro_file``: the records of Avro object container files.
"""
