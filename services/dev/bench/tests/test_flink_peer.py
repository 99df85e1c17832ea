"""The peer on Flink needs a whole JDK, which is told before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.services.dev.bench.peers import peer_runs
from tallyweir.sinks.protocol.errors import ConfigurationError


def _java_with(modules: str, directory: Path) -> Path:
    java = directory / "java"
    java.write_text(f"#!/bin/sh\nprintf '{modules}'\n")
    java.chmod(0o755)
    return java


def test_a_java_without_a_compiler_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundled Java is one of them."""
    java = _java_with(r"java.base@21\njava.compiler@21\n", tmp_path)
    monkeypatch.setattr(peer_runs, "find_java", lambda: java)
    with pytest.raises(ConfigurationError, match="JAVA_COMPILER_MISSING"):
        peer_runs.check_java_compiler()


def test_a_java_with_a_compiler_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole JDK has it."""
    java = _java_with(r"java.base@17\njdk.compiler@17\n", tmp_path)
    monkeypatch.setattr(peer_runs, "find_java", lambda: java)
    peer_runs.check_java_compiler()
