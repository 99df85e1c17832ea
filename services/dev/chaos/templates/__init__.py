"""Kills ready pipelines, and holds their tables against those of undisturbed ones."""
