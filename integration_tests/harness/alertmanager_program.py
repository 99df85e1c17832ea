"""Debian's Alertmanager, unpacked and not installed: nothing of it stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.metrics_client import free_port

_PACKAGE = "prometheus-alertmanager"
_PROGRAM = f"usr/bin/{_PACKAGE}"
_DEADLINE_S = 60.0
_CONFIGURATION = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


@contextmanager
def running_alertmanager(directory: Path) -> Iterator[str]:
    """Run one in the block; gives its address. Skips where there is none to be had."""
    program = _unpack(directory)
    configuration = directory / "alertmanager.yml"
    configuration.write_text(_CONFIGURATION)
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            *program,
            f"--config.file={configuration}",
            f"--storage.path={directory / 'alertmanager'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://{address}"
        _wait_until_ready(url)
        yield url
    finally:
        process.terminate()
        process.wait(_DEADLINE_S)


def active_alerts(url: str) -> list[dict[str, Any]]:
    """Return what it would notify people of."""
    asked = f"{url}/api/v2/alerts?active=true"
    with urllib.request.urlopen(asked, timeout=_DEADLINE_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def _unpack(directory: Path) -> list[str]:
    """Return the command that runs it."""
    installed = shutil.which(_PACKAGE)
    if installed is not None:
        return [installed]
    tools = [shutil.which(name) for name in ("apt-get", "dpkg-deb", "unshare")]
    if None in tools:
        pytest.skip(f"there is no {_PACKAGE}, and nothing to fetch and unpack it with")
    apt, dpkg, unshare = map(str, tools)
    fetch = (apt, "download", _PACKAGE)
    for command in (fetch, (apt, "update", "-qq"), fetch):
        subprocess.run(command, cwd=directory, check=False, capture_output=True)
        if list(directory.glob("*.deb")):
            break
    packages = list(directory.glob("*.deb"))
    if not packages:
        pytest.skip(f"{_PACKAGE} could not be fetched")
    subprocess.run((dpkg, "-x", packages[0], directory), check=True)
    # It wants its templates in a place of the system's, which only it gets to see.
    mount = 'mount --bind "$0/usr/share" /usr/share && exec "$@"'
    inside = ["sh", "-c", mount, str(directory), str(directory / _PROGRAM)]
    return [unshare, "--mount", "--map-root-user", *inside]


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1.0):
                return
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "it does not become ready"
            time.sleep(0.1)
