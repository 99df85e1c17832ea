"""Send events to Kafka; an event counts as sent once the broker has it.

- ``producer``: an idempotent producer; outcomes are the broker's reports.
- ``faults``: repeatable duplicates, poison and disorder, with the expected result.
- ``emit``: reads CSV and JSON lines as records of a contract, and sends them.
- ``source_section``: the parts of a pipeline file that a producer needs.
"""
