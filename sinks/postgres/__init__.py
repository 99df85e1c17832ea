"""The protocol on Postgres: ledger, staging, publish, catalog, result tables."""
