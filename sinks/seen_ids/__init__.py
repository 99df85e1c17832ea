"""Which producer IDs were seen: fingerprints, runs, claims, the driver's copy."""
