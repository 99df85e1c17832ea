"""The checks of verify: one module for each kind of row that must agree."""
