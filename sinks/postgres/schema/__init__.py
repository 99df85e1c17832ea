"""The ledger's schema: migrations, roles, scratch databases."""
