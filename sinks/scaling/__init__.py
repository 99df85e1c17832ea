"""How a pipeline is scaled: pure, without input or output, clock or randomness.

A driver looks at its pipeline every few seconds, and ``decide`` says from what was seen
how many executors it is to have and how large a batch may be. Who looks, asks Spark and
writes the decision down is ``spark_jobs.scaling``; docs/scaling.md tells the rules.
"""
