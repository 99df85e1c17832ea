"""The relay: a service that publishes to Kafka what the home database has decided.

It sends dead letters on to topics of their own, and shows Kafka's tools the offsets
that pipelines have committed. At least once, with an ID that repeats share, and in
commit order; ``docs/relay.md`` has the reasons.
"""

from __future__ import annotations
