"""JSON values, read strictly by the fields that a pipeline names.

- ``json_fields``: reads the fields, and lists all their problems.
- ``json_text``: reads one document, exactly or not at all.
- ``json_canonical``: the form that documents of one meaning share.
- ``json_times``, ``json_values``: values of JSON as values of columns, and back.
- ``json_codec``: the compiled form of a contract, for one document.
- ``json_damages``: ways to break a payload.
- ``json_format``: the format; ``framed_json`` and ``framed_decoder``: the same behind
  a schema registry's ids.
- ``json_schema``: fields by a JSON Schema.
- ``json_rows``: payloads to columns, one document at a time.
- ``json_decoder``: a batch of payloads to columns, by ``json_columns`` as far as that
  can prove them good, and by ``json_rows`` otherwise.
- ``json_columns``: ``json_scan`` finds the texts of many documents, ``json_objects``
  walks through their members, ``json_leaves`` and ``json_numbers`` read the values,
  ``json_assembly`` joins them to canonical forms and columns.
"""
