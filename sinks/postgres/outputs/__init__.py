"""The kinds of outputs: their tables, and how rows get into them."""
