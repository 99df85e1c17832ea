"""Scale a running pipeline: observe it, ask ``sinks.scaling``, act on the answer."""
