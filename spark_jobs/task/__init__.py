"""What an executor does: decode its events, decide their fate, stage their rows."""
