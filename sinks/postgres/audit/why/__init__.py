"""Finds what became of one event, and of each dead letter."""
