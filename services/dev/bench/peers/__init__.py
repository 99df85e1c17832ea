"""Other programs that do the same work, for comparison."""
