"""What the JVM computes of a batch: expressions, lookups, transforms, predictions."""
