"""Send events to Kafka; an event counts as sent once the broker has it.

- ``producer``: an idempotent producer; outcomes are the broker's reports.
- ``typed_rows``: reads CSV and JSON lines as records of a contract.
- ``faults``: repeatable duplicates, poison and disorder, with the expected result.
- ``emit``: all of these together.
- ``source_section``, ``python_pipeline``: the parts of a pipeline file that a producer
  needs.
"""
