"""Where committed events go: the protocol, the Postgres adapter, and their fakes."""
