"""Samples where a pipeline spends its time, and draws a flame graph.

- ``driver_samples``: finds the driver's process on this host, and samples its Python by
  py-spy and its JVM by Java Flight Recorder.
- ``flame_graph``: draws stacks as an SVG without any script.
"""
