"""JSON values, read strictly by the fields that a pipeline names.

- ``json_fields``: reads the fields, and lists all their problems.
- ``json_text``: reads one document, exactly or not at all.
- ``json_canonical``: the form that documents of one meaning share.
- ``json_times``, ``json_values``: values of JSON as values of columns, and back.
- ``json_codec``: the compiled form of a contract, for one document.
- ``json_damages``: ways to break a payload.
- ``json_format``: the format.
- ``json_rows``: a batch of payloads to columns, one document at a time.
"""
