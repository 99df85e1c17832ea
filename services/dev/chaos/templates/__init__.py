"""Kills the drivers of ready pipelines, and compares tables with undisturbed runs."""
