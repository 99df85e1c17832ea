"""Compute columns in Spark: expressions, lookups, transforms, predictions."""
