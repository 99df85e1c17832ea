"""Sends dead letters to their topics again, unchanged, once their cause is fixed.

- ``source_records``: the headers of records, which only Kafka has.
- ``redriver``: sends selected dead letters in order, and notes each.
- ``letter_report``: a dead letter for people, decoded as far as possible.
"""
