"""Scripts of users call these commands with these options, so none goes in silence."""

from __future__ import annotations

from pathlib import Path

from tallyweir.services.cli.tests.surface import surface


def test_commands_and_their_options_are_those_that_users_were_told_of() -> None:
    """Whoever adds or changes one writes the file again, and the changelog."""
    assert surface() == Path(__file__).with_name("surface.txt").read_text("utf-8")
