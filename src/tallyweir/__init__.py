"""Events from Kafka through Spark into Postgres, each counted exactly once."""

from __future__ import annotations
