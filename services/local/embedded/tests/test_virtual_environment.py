"""When the environment counts as made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.services.local.embedded import virtual_environment
from tallyweir.services.local.embedded.virtual_environment import (
    PEERS_LOCK,
    RUNTIME_LOCK,
    install,
    is_installed,
)

_PACKAGES = (".venv", "lib", "python3.11", "site-packages")


def repository(root: Path, *, lock: str, stamp: str | None) -> Path:
    """A repository with a lock and perhaps the copy that a set-up left."""
    root.joinpath(*_PACKAGES, "a_b-1.dist-info").mkdir(parents=True)
    (root / RUNTIME_LOCK).write_text(lock)
    if stamp is not None:
        (root / ".venv" / RUNTIME_LOCK).write_text(stamp)
    return root


def test_an_environment_without_its_stamp_is_not_installed(tmp_path: Path) -> None:
    """A set-up that was killed half-way has no stamp, whatever else it left."""
    root = repository(tmp_path, lock="a==1", stamp=None)

    assert not is_installed(RUNTIME_LOCK, root=root)


def test_an_environment_of_another_lock_is_not_installed(tmp_path: Path) -> None:
    """A pull that changed the lock makes the next start install."""
    root = repository(tmp_path, lock="a==2", stamp="a==1")

    assert not is_installed(RUNTIME_LOCK, root=root)


def test_an_installed_lock_is_left_alone(tmp_path: Path) -> None:
    """The second start does no work; here there would be no pip to do it with."""
    root = repository(tmp_path, lock="A.b==1", stamp="A.b==1")

    install(RUNTIME_LOCK, root=root)

    names = {path.name for path in (root / ".venv").iterdir()}
    assert names == {RUNTIME_LOCK, "lib"}


def test_a_package_that_was_removed_is_not_installed(tmp_path: Path) -> None:
    """What its stamp says is not true any more; a marker may have kept one out."""
    lock = "A.b==1 \\\n    --hash=sha256:0\nc==1 ; sys_platform == 'win32'\n"
    root = repository(tmp_path, lock=lock, stamp=lock)
    assert is_installed(RUNTIME_LOCK, root=root)

    root.joinpath(*_PACKAGES, "a_b-1.dist-info").rmdir()
    assert not is_installed(RUNTIME_LOCK, root=root)


def test_what_a_link_leads_to_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the environment of another clone."""
    root = repository(tmp_path, lock="A.b==2", stamp="A.b==1")
    other = tmp_path / "other"
    (root / ".venv").rename(other)
    (root / ".venv").symlink_to(other)
    locks: list[Path] = []
    monkeypatch.setattr(
        virtual_environment, "_pip_install", lambda lock, _: locks.append(lock)
    )

    install(RUNTIME_LOCK, root=root)

    assert not (root / ".venv").is_symlink()
    assert (root / ".venv" / RUNTIME_LOCK).read_text() == "A.b==2"
    assert (other / RUNTIME_LOCK).read_text() == "A.b==1"
    assert other.joinpath(*_PACKAGES[1:], "a_b-1.dist-info").is_dir()


def test_an_environment_of_its_own_is_told_by_its_own_stamp(tmp_path: Path) -> None:
    """The peers' packages are not in .venv, and are not installed twice."""
    root = repository(tmp_path, lock="A.b==1", stamp="A.b==1")
    (root / PEERS_LOCK).write_text("# b")
    (root / ".venv" / PEERS_LOCK).write_text("# b")
    peers = tmp_path / "peers"
    peers.mkdir()

    assert not is_installed(PEERS_LOCK, root=root, venv=peers)

    (root / ".venv" / PEERS_LOCK).replace(peers / PEERS_LOCK)
    install(PEERS_LOCK, root=root, venv=peers)

    assert [path.name for path in peers.iterdir()] == [PEERS_LOCK]
