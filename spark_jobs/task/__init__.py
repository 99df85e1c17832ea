"""What an executor does with its events: decide their fate, and stage their rows."""
