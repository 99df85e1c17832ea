"""Tables of users, the ledger's schema, and the roles that may use them."""
