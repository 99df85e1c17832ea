"""What the home keeps about a pipeline: registration, claims, positions, decisions."""
