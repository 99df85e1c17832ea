"""Which producer IDs were seen: fingerprints, sorted runs, claims, the node's cache."""
