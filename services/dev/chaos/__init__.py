"""Chaos: real servers and drivers under faults, and an independent checker.

- ``plan``: which faults, when and how; decided by the options and the seed alone.
- ``workload``: the events and the producer transactions that carry them.
- ``sender``, ``sent_log``, ``gate``: send them, record what the broker has, limit how
  far sending may run ahead.
- ``world``: the run's own broker, database servers, topic and pipeline.
- ``wire_messages``, ``wire_proxy``: cut the network at a chosen message.
- ``supervisor``: keeps a driver running, as an init system does.
- ``nemesis``: carries the plan out.
- ``snapshots``, ``snapshot_reader``: what a reader must see while everything happens.
- ``observation``, ``check_*``, ``verdict``: what must hold at the end.
- ``self_test``: the proof that the checks notice damage.
- ``run``, ``report``: run all of these together, and report the outcome.
"""
