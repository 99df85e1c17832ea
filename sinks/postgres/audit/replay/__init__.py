"""Replays: computes a pipeline again from Kafka and compares the results."""
