"""What holds for every test of the project."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is not a slow test: pytest-timeout is what ends those that hang.
settings.register_profile(
    "tallyweir", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tallyweir")
