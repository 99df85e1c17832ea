"""The kinds of outputs: their tables, and how rows come into them."""
