"""Makes a notebook beside a captured slice, and starts Jupyter on it."""
