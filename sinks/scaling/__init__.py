"""How a pipeline is scaled: pure, without input or output, clock or randomness.

A driver observes its pipeline every few seconds. From these observations ``decide``
chooses the number of executors and the size of a batch.
``tallyweir.spark_jobs.scaling`` makes the observations, asks Spark and records the
decision; docs/scaling.md explains the rules.
"""
