"""The state directory is one that everything below it can use, or it is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.embedded.state_directory import STATE_DIRECTORY_VARIABLE, state_directory
from sinks.protocol.errors import ConfigurationError


@pytest.mark.parametrize("name", ["a b", "d'accord", "é", "50%", "(x) & $y;#"])
def test_a_path_may_have_what_separates_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made when missing."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / name / "state"))
    assert tmp_path / name / "state" == state_directory()
    assert state_directory().is_dir()


@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b", 'a"b', "a\nb"])
def test_a_path_with_a_separator_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark, Kafka or Java would take it for two paths, or for another one."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / name))
    with pytest.raises(ConfigurationError, match="STATE_DIRECTORY"):
        state_directory()
    assert not (tmp_path / name).exists()


def test_a_directory_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a read-only clone; the fix names the variable that leads elsewhere."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "file" / "state"))
    with pytest.raises(ConfigurationError) as caught:
        state_directory()
    assert STATE_DIRECTORY_VARIABLE in caught.value.fix


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before something in it fails."""
    tmp_path.chmod(0o500)
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigurationError, match="STATE_DIRECTORY"):
        state_directory()
