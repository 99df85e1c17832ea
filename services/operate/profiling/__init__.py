"""Samples where a pipeline spends its time, and draws a flame graph.

- ``found_driver``: the driver's process on this host.
- ``python_samples``: samples of its Python and its Python workers, by py-spy.
- ``jvm_samples``: samples of its JVM, by Java Flight Recorder.
- ``flame_graph``: draws stacks as an SVG without any script.
"""
