"""Files of a pipeline with an append table and a window, and of its fork."""

from __future__ import annotations

from integration_tests.harness.driver_world import SOURCE

_OUTPUTS = """
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_sensor
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
"""
#: ``readings``.
FIRST = SOURCE + _OUTPUTS


def forked_file(rule: str = "") -> str:
    """Return the file of ``readings-2``, with a rule that the first does not have."""
    return SOURCE.replace("readings\n", "readings-2\n", 1) + rule + _OUTPUTS
