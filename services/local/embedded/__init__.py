"""A Kafka broker and a Postgres server of our own, for a laptop and for tests.

Both run as ordinary processes from jars and binaries that the set-up fetches. They need
no container, no system package and no root, and listen on 127.0.0.1 only.
"""
