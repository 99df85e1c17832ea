"""Builds the container images: wheels and jars by hash first, then no network."""
