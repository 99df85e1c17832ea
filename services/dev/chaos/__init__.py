"""Chaos: real servers and drivers under faults, and an independent checker.

- ``plan``: which faults, when and how; decided by the options and the seed alone.
- ``workload``: the events and the producer transactions that carry them.
- ``sender``, ``sent_log``: send them, record what the broker has, limit how
  far sending may run ahead.
- ``chaos_world``: the run's own broker, database servers, topic and pipeline.
- ``registered_writers``: the schemas of the events, if they are in a registry.
- ``wire_proxy``: cuts the network at a chosen message.
- ``supervisor``: keeps a driver running, as an init system does.
- ``nemesis``: carries the plan out.
- ``snapshots``: what a reader must see while everything happens.
- ``observed_run``, ``invariants``, ``verdict``: what must hold at the end.
- ``self_test``: the proof that the checks notice damage.
- ``chaos_run``, ``chaos_report``: run all of these together, and report the outcome.
"""
