"""What two versions know together is what each of them knows."""

from __future__ import annotations

from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge, HeldWindows


def test_what_one_of_two_does_not_know_is_not_known() -> None:
    """Of each bound the later one counts, and one that only one has is kept."""
    one = HeldKnowledge(
        ids_from_us=5,
        windows={
            "both": HeldWindows(known_after_us={"highest": 7, "least": 1}),
            "one": HeldWindows(closed_through_us=3),
        },
    )
    other = HeldKnowledge(
        windows={
            "both": HeldWindows(closed_through_us=2, known_after_us={"highest": 4}),
            "other": HeldWindows(known_after_us={"highest": 9}),
        },
    )
    joined = HeldKnowledge(
        ids_from_us=5,
        windows={
            "both": HeldWindows(
                closed_through_us=2, known_after_us={"highest": 7, "least": 1}
            ),
            "one": HeldWindows(closed_through_us=3),
            "other": HeldWindows(known_after_us={"highest": 9}),
        },
    )
    assert one.joined(other) == joined == other.joined(one)
    assert one.joined(HeldKnowledge()) == one
