"""How the values of topics are written: one package or module for each format.

- ``format``: the interface that a format implements.
- ``decoded_columns``: what its decoder of whole batches returns.
- ``known_formats``: the formats that there are. A new one is a subclass of ``Format``,
  and a line there.
- ``avro``, ``json``, ``protobuf``; ``plain_format`` for text and bytes.
- ``framing``: what stands in front of a value.
- ``debezium_envelope``: which records of a connector's topics are changes.
"""
