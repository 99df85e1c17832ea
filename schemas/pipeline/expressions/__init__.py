"""Spark SQL in pipelines: what it reads, and what is refused."""
