"""Samples where a pipeline spends its time, and draws it.

- ``found_driver``: the driver's process on this host.
- ``python_samples``: its Python and its Python workers, by py-spy.
- ``jvm_samples``: its JVM, by Java Flight Recorder.
- ``flame_graph``: stacks as an SVG without any script.
"""
