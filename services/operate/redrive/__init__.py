"""Sends dead letters to their topics again, as they were, once their cause is mended.

- ``source_records``: the headers of records, which only Kafka has.
- ``redriver``: sends a selection of dead letters in order, and notes each.
- ``letter_report``: a dead letter for people, decoded as far as it goes.
"""
