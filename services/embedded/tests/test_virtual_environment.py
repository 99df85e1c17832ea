"""When the environment counts as made."""

from __future__ import annotations

from pathlib import Path

from services.embedded.virtual_environment import (
    PEERS_LOCK,
    RUNTIME_LOCK,
    install,
    is_installed,
)


def repository(root: Path, *, lock: str, stamp: str | None) -> Path:
    """A repository with a lock and perhaps the copy that a set-up left."""
    (root / ".venv").mkdir()
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
    root = repository(tmp_path, lock="a==1", stamp="a==1")

    install(RUNTIME_LOCK, root=root)

    assert [path.name for path in (root / ".venv").iterdir()] == [RUNTIME_LOCK]


def test_an_environment_of_its_own_is_told_by_its_own_stamp(tmp_path: Path) -> None:
    """The peers' packages are not in .venv, and are not installed twice."""
    root = repository(tmp_path, lock="a==1", stamp="a==1")
    (root / PEERS_LOCK).write_text("b==1")
    (root / ".venv" / PEERS_LOCK).write_text("b==1")
    peers = tmp_path / "peers"
    peers.mkdir()

    assert not is_installed(PEERS_LOCK, root=root, venv=peers)

    (root / ".venv" / PEERS_LOCK).replace(peers / PEERS_LOCK)
    install(PEERS_LOCK, root=root, venv=peers)

    assert [path.name for path in peers.iterdir()] == [PEERS_LOCK]
