"""Makes a notebook next to a captured slice, and starts Jupyter on it."""
