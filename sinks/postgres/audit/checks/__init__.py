"""What verify compares: one module for each kind of rows that must agree."""
