"""The catalog of seen IDs on disk: buckets, runs and chunks."""
