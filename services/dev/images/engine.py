"""Provides a container engine for the tests: the one that answers, or Debian's."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tallyweir.services.dev.debian_packages import install_packages, why_not_installable
from tallyweir.services.dev.images.build import check_engine
from tallyweir.sinks.protocol.errors import ConfigurationError

_PACKAGES = ("docker.io", "iptables", "debootstrap", "openssl")
_START_TIMEOUT_S = 60.0
_POLL_S = 0.5


@contextmanager
def container_engine() -> Iterator[str | None]:
    """Find or start an engine; stop it after the block if it was started here.

    Yields:
        None if an engine answers; otherwise the reason why there is none.
    """
    if _answers():
        yield None
        return
    reason = _why_not()
    if reason is not None:
        yield reason
        return
    if shutil.which("dockerd") is None and not _install():
        yield "no container engine answers, and Debian's could not be installed"
        return
    engine = subprocess.Popen(
        ["dockerd"],  # noqa: S607 - wherever the package has put it
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _answers() and engine.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        yield None if _answers() else "dockerd was started and does not answer"
    finally:
        engine.terminate()
        engine.wait()


def _answers() -> bool:
    try:
        check_engine()
    except ConfigurationError:
        return False
    return True


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "no container engine answers, and starting one needs root"
    if shutil.which("dockerd") is None:
        reason = why_not_installable()
        return reason and f"no container engine answers, and {reason}"
    return None


def _install() -> bool:
    installed = install_packages("a container engine", *_PACKAGES)
    return installed and shutil.which("dockerd") is not None
