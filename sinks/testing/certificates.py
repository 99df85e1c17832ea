"""Certificates of an authority that nobody else knows, made by OpenSSL."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def make_certificates(directory: Path) -> None:
    """Make ``ca.pem``, and key and certificate of a ``server`` and a ``client``.

    Each certificate is for ``localhost``, and lasts for two days.
    """
    openssl(
        directory,
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"),
    )
    for name in ("server", "client"):
        openssl(
            directory,
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-keyout", f"{name}.key", "-out", f"{name}.crt"),
        )


def openssl(directory: Path, *arguments: str, given: str = "") -> bytes:
    """Run OpenSSL in a directory; return what it writes."""
    program = shutil.which("openssl")
    assert program is not None
    return subprocess.run(
        [program, *arguments],
        cwd=directory,
        input=given.encode(),
        check=True,
        capture_output=True,
    ).stdout
