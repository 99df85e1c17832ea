"""Which producer IDs were seen: fingerprints, sorted runs, claims, a driver's copy."""
