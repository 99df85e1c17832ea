"""The state directory is one that everything below it can use, or it is refused."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from tallyweir.services.local.embedded import state_directory as module
from tallyweir.services.local.embedded.embedded_server import Daemon
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    state_directory,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

_WRITE = (
    "import pathlib, signal, sys; d = pathlib.Path(sys.argv[1]); "
    "(d / 'segment').write_text('x'); (d / 'part').mkdir(); "
    "print('written', flush=True); signal.pause()"
)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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


def test_the_state_directory_is_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that a former version made for everybody."""
    monkeypatch.delenv(STATE_DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    former = tmp_path / ".tallyweir"
    former.mkdir(mode=0o755)
    assert state_directory() == former
    assert _mode(former) == 0o700
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "new"))
    assert _mode(state_directory()) == 0o700


@pytest.mark.parametrize(
    ("given", "expected"), [("data", "data"), ("", "home/.local/share")]
)
def test_an_installed_copy_keeps_its_state_in_the_users_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    """Nothing that it writes lies among installed packages."""
    monkeypatch.delenv(STATE_DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(module, "ROOT", tmp_path / "site-packages" / "tallyweir")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / given) if given else "relative")
    assert tmp_path / expected / "tallyweir" == state_directory()
    assert not (tmp_path / "site-packages").exists()


def test_a_directory_that_somebody_names_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it has decided who may look into it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(shared))
    assert _mode(state_directory()) == 0o750


def test_what_a_server_writes_is_for_this_user_alone(tmp_path: Path) -> None:
    """As the segments of Kafka, which hold whole events."""
    daemon = Daemon("it", tmp_path)
    daemon.spawn([sys.executable, "-c", _WRITE, str(tmp_path)], dict(os.environ))
    daemon.await_ready(lambda: "written" in daemon.log.read_text(), deadline_s=10)
    assert _mode(tmp_path / "segment") == 0o600
    assert _mode(tmp_path / "part") == 0o700
    assert daemon.stop(signal.SIGTERM, deadline_s=10)
