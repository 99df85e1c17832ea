"""Chaos: real servers and drivers under faults, and a checker that owes them nothing.

- ``plan``: which faults, when and how; decided by the options and the seed alone.
- ``workload``: the events and the producer transactions that carry them.
- ``sender``, ``sent_log``, ``gate``: who sends them, what the broker has, how far
  sending may run ahead.
- ``world``: broker, database servers, topic and pipeline of the run's own.
- ``wire_messages``, ``wire_proxy``: cut the network at a chosen message.
- ``supervisor``: keeps a driver running, as an init system does.
- ``nemesis``: carries the plan out.
- ``snapshots``, ``snapshot_reader``: what a reader must see while everything happens.
- ``observation``, ``check_*``, ``verdict``: what must hold at the end.
- ``self_test``: the proof that the checks would notice.
- ``run``, ``report``: all of these together, and what is told about it.
"""
