"""Studies of the catalog of seen IDs."""
