"""Get events into Kafka so that nothing is called sent before the broker has it.

- ``producer``: an idempotent producer; outcomes are the broker's reports.
- ``typed_rows``: CSV and JSON lines as records of a contract.
- ``faults``: repeatable duplicates, poison and disorder, with what to expect.
- ``emit``: all of these together.
- ``source_section``, ``python_pipeline``: what a producer must know of a pipeline file.
"""
