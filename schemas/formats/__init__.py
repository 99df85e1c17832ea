"""How the values of topics are written: one package or module for each format.

- ``format``: the interface that a format implements.
- ``decoded_columns``: what its decoder of whole batches returns.
- ``known_formats``: the formats that there are.
- ``avro``: the first of them.
"""
