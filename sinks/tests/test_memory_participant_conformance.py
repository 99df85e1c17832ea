"""The fake databases keep every promise that is made of several databases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallyweir.sinks.testing.memory_participant_harness import MemoryParticipantHarness
from tallyweir.sinks.testing.participant_conformance import BRANCH_CASES
from tallyweir.sinks.testing.participant_harness import (
    BRANCHES,
    EVENTS,
    ParticipantHarness,
    branch_of,
)


@pytest.mark.parametrize("case", BRANCH_CASES, ids=lambda case: case.__name__)
def test_memory_participant_conforms(
    case: Callable[[ParticipantHarness], None],
) -> None:
    """Each case of the suite holds on the fakes."""
    case(MemoryParticipantHarness())


def test_every_branch_has_a_row_in_three_offsets() -> None:
    """What the cases count on."""
    assert list(BRANCHES) == [branch_of((EVENTS, offset)) for offset in range(3)]
