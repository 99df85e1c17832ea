"""The relay: a service that sends messages from the home database to Kafka.

It sends dead letters and the outbox to their topics, and shows Kafka's tools the
offsets that pipelines have committed. It sends each message at least once, in commit
order, and a repeat has the same ID. ``docs/relay.md`` has the reasons.
"""

from __future__ import annotations
