"""Replays: a pipeline computed again from Kafka, held against what it has."""
