"""Benchmark programs that run in a Spark process."""
