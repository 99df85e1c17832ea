"""Pipelines whose contracts are in a schema registry."""
