"""What a pipeline says of its events, before they reach outputs."""
