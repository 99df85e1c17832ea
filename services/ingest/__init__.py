"""Get events into Kafka so that nothing is called sent before the broker has it.

- ``producer``: an idempotent producer; outcomes are the broker's reports.
- ``topics``: make or find a topic.
- ``typed_rows``: CSV and JSON lines as records of a contract.
- ``faults``: repeatable duplicates, poison and disorder, with what to expect.
- ``emit``: all of these together.
- ``source_section``: what of a pipeline file a producer needs to know.
"""
