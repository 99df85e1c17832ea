"""Windows, sessions, joins and keyed state against models."""
