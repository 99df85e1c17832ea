"""Builds the container images: fetches wheels and jars by hash, then works offline."""
