"""What the ledger's schema is made of: migrations, roles, throw-away databases."""
