"""What the home keeps of a pipeline: registration, claims, positions, decisions."""
