"""Scaling a running pipeline: looks, asks ``sinks.scaling`` and acts on its answer."""
