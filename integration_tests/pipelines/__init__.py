"""Whole pipelines as users write them, and what leaves them for Kafka."""
