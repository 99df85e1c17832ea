"""Avro values with Confluent's header in front; ``avro_format`` is the format.

- ``schema_file``, ``safety``: read a schema, and refuse what could kill a decoder.
- ``wire_format``: the header around an Avro body.
- ``avro_codec``: the compiled form of a contract, for one record.
- ``column_decoder``: a batch of payloads to columns, as strictly.
- ``compatibility``: whether a reader of one version can read data of another.
- ``avro_file``: the records of Avro object container files.
"""
