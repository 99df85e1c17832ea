"""No jar runs that is not the locked one."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pytest

from tallyweir.services.local.embedded import jars
from tallyweir.services.local.embedded.jars import Jar, locked_jars, verify_jar
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError


def jar_of(content: bytes) -> Jar:
    """A jar whose lock entry is made from ``content``."""
    digest = hashlib.sha256(content).hexdigest()
    return Jar(group="g", artifact="a", version="1", sha256=digest)


def fake_resolver(content: bytes | None, out: Path) -> list[str]:
    """A program that stands where Maven does: it brings ``content``, or nothing."""
    if content is None:
        return [sys.executable, "-c", "print('no such artifact')"]
    program = (
        "import pathlib, sys; out = pathlib.Path(sys.argv[1]); out.mkdir(); "
        "(out / 'a-1.jar').write_bytes(bytes.fromhex(sys.argv[2]))"
    )
    return [sys.executable, "-c", program, str(out), content.hex()]


@pytest.fixture
def fetch_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A state directory of its own, and a lock that names one jar: ``locked``."""
    monkeypatch.setenv("TALLYWEIR_STATE_DIR", str(tmp_path))
    one = (jar_of(b"locked"),)
    monkeypatch.setattr(jars, "locked_jars", lambda _section, **_lock: one)
    monkeypatch.setattr(shutil, "which", lambda _name: "mvn")
    return monkeypatch


def test_a_changed_jar_is_refused(tmp_path: Path) -> None:
    """One other byte is another program."""
    path = tmp_path / "a-1.jar"
    path.write_bytes(b"changed")

    with pytest.raises(ConfigurationError, match="JAR_CHANGED"):
        verify_jar(jar_of(b"locked"), path)


def test_the_locked_jar_is_accepted(tmp_path: Path) -> None:
    """The check refuses by content, not by name or date."""
    path = tmp_path / "whatever"
    path.write_bytes(b"locked")

    verify_jar(jar_of(b"locked"), path)


def test_a_fetched_jar_with_another_hash_never_reaches_its_place(
    tmp_path: Path, fetch_one: pytest.MonkeyPatch
) -> None:
    """A file in the jar directory is a verified one, so starts need not hash again."""
    fetch_one.setattr(
        jars, "_maven_command", lambda _m, _j, _w, out: fake_resolver(b"evil", out)
    )

    with pytest.raises(ConfigurationError, match="JAR_CHANGED"):
        jars.ensure_jars("spark")
    assert list(tmp_path.rglob("*.jar")) == []


def test_a_jar_that_nobody_serves_can_be_retried_and_shows_why(
    fetch_one: pytest.MonkeyPatch,
) -> None:
    """A network that is down today is not a configuration error."""
    fetch_one.setattr(
        jars, "_maven_command", lambda _m, _j, _w, out: fake_resolver(None, out)
    )

    with pytest.raises(RetryableError, match="no such artifact"):
        jars.ensure_jars("spark")


def test_a_good_jar_is_fetched_once(
    tmp_path: Path, fetch_one: pytest.MonkeyPatch
) -> None:
    """The second start finds it and asks nobody."""
    fetch_one.setattr(
        jars, "_maven_command", lambda _m, _j, _w, out: fake_resolver(b"locked", out)
    )
    (path,) = jars.ensure_jars("spark")
    fetch_one.setattr(
        jars, "_maven_command", lambda _m, _j, _w, out: fake_resolver(None, out)
    )

    assert [path] == jars.ensure_jars("spark")
    assert path == tmp_path / "jars" / "a-1.jar"


@pytest.mark.parametrize("section", ["spark", "broker", "bench", "flink", "registry"])
def test_every_locked_jar_has_a_whole_hash(section: str) -> None:
    """No entry of the lock lets just any file through."""
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in locked_jars(section))
