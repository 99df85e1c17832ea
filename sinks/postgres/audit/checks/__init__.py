"""What verify compares: one module for each kind of row that must agree."""
