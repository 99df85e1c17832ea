"""Looks at a topic that no pipeline reads yet, and proposes a pipeline for it.

Only ``topic_reader`` talks to Kafka. From the bottom up:

- ``looked_record``: a record as it was read;
- ``value_kinds``: what a value is written in;
- ``field_profile``, ``document_fields``: the fields of documents and their types;
- ``identity_store``: counts repeats and conflicts, in bounded memory;
- ``disorder``: how far events come after newer ones;
- ``topic_profile``: all that is noted of a topic, one record at a time;
- ``id_candidates``, ``time_candidates``: which field is the ID, and which the time;
- ``pipeline_proposal``: the pipeline file;
- ``topic_reader``: a sample of a topic, or all of it;
- ``shown_values``, ``look_report``: the report;
- ``look``: all of it.
"""
