"""A steady load for a long time."""
