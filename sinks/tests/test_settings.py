"""A setting comes from the environment or from a file, never from both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import read_setting


def test_a_setting_is_the_variables_value() -> None:
    """An empty value is a value: libpq has defaults for it."""
    assert read_setting({"A": "1"}, "A") == "1"
    assert read_setting({"A": ""}, "A") == ""
    assert read_setting({}, "A") is None


def test_a_files_last_line_break_is_not_part_of_the_value(tmp_path: Path) -> None:
    """Editors and echo add one."""
    path = tmp_path / "a"
    for text in ("hush", "hush\n", "hush\r\n"):
        path.write_text(text)
        assert read_setting({"A_FILE": str(path)}, "A") == "hush"


def test_a_setting_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Either could be the stale one."""
    with pytest.raises(ConfigurationError, match="SETTING_TWICE"):
        read_setting({"A": "1", "A_FILE": str(tmp_path / "a")}, "A")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    """The container was not given its secret."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="SETTING_UNREADABLE") as refused:
        read_setting({"A_FILE": str(path)}, "A")
    assert str(path) in refused.value.saw
