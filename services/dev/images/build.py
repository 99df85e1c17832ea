"""Builds the wheel, and the images ``tallyweir/services`` and ``tallyweir/spark``.

An image is built without a network, so that it can hold only the packages of its lock.
The packages are for the Python and the machine of the image. pip checks every hash
twice: before the build, and when the image installs the package.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallyweir.services.local.datasets.flights import fetch_archive
from tallyweir.services.local.embedded.jars import ensure_jars
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.services.local.embedded.virtual_environment import (
    DEVELOPMENT_LOCK,
    install,
    last_lines,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_SERVICES_LOCKS = ("requirements-services.lock",)
_SPARK_LOCKS = ("requirements-build.lock", "requirements-spark.lock")
#: The bases of the Dockerfiles, by their tags without the digest.
_STAND_INS = {
    "python": "python:3.11-slim-bookworm",
    "java": "eclipse-temurin:17-jre",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image that the engine has.

    Attributes:
        name: Its name with the tag, such as ``tallyweir/services:0.1.0``.
        image_id: Its digest in this engine.
        size_b: Bytes of all its layers.
    """

    name: str
    image_id: str
    size_b: int


def image_name(kind: str) -> str:
    """Return the name and tag of an image, ``services`` or ``spark``."""
    return f"tallyweir/{kind}:{version()}"


def version() -> str:
    """Return the product's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def build_images(
    *, uses_stand_ins: bool, tell: Callable[[str], None]
) -> list[BuiltImage]:
    """Fetch what the locks list, then build both images without a network.

    Args:
        uses_stand_ins: Whether to build the public bases from Debian's packages first,
            which requires root. Otherwise the engine pulls them by their digests.
        tell: Called with a line about each step.

    Raises:
        ConfigurationError: ``ENGINE_MISSING``.
        RetryableError: ``IMAGE_NOT_BUILT``, or something could not be fetched.
    """
    check_engine()
    # Docker sees nothing outside of the clone. This is its only folder for files that
    # can be made again, even if this process has another state directory.
    context = ROOT / ".tallyweir" / "images"
    tell("building the wheel")
    build_wheel(context / "package")
    tell("fetching wheels and jars by their hashes")
    fetch_wheels(context / "services", _SERVICES_LOCKS)
    fetch_wheels(context / "spark", _SPARK_LOCKS)
    _copy(ensure_jars("spark"), context / "jars")
    _copy([fetch_archive()], context / "datasets")
    bases: dict[str, str] = {}
    if uses_stand_ins:
        tell("building stand-ins for the public bases from Debian's packages")
        build_stand_ins(context / "broker")
        bases = _STAND_INS
    images = []
    for kind in ("services", "spark"):
        tell(f"building {image_name(kind)}")
        images.append(_build(kind, bases))
    return images


def build_stand_ins(broker_jars: Path) -> None:
    """Build the images of docker/bases that do not exist yet."""
    _copy(ensure_jars("broker"), broker_jars)
    _run(
        [str(ROOT / "docker" / "bases" / "build")],
        {"TALLYWEIR_BROKER_JARS": str(broker_jars)},
    )


def registry_answers() -> bool:
    """Tell whether the engine can pull the base of all images of Tallyweir."""
    dockerfile = (ROOT / "docker" / "services.Dockerfile").read_text("utf-8")
    base = re.search(r"^ARG PYTHON_BASE=(\S+)$", dockerfile, re.MULTILINE)
    assert base is not None
    command = ["docker", "pull", "--quiet", base[1]]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def check_engine() -> None:
    """Make sure that a container engine answers.

    Raises:
        ConfigurationError: ``ENGINE_MISSING``.
    """
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        saw = last_lines(done.stderr, 1)
    except FileNotFoundError:
        saw = "No docker command is on the PATH."
    raise ConfigurationError(
        "ENGINE_MISSING",
        saw=saw,
        why="A container engine builds and runs the images.",
        fix="Install Docker and start it; on Debian: apt-get install docker.io",
    )


def _build(kind: str, bases: dict[str, str]) -> BuiltImage:
    name = image_name(kind)
    arguments = {
        "VERSION": version(),
        "REVISION": _git("rev-parse", "HEAD"),
        # The commit's time, not the build's: the same commit makes the same image.
        "CREATED": _git("log", "-1", "--format=%cI"),
        **{
            f"{base.upper()}_BASE": tag
            for base, tag in bases.items()
            if kind == "spark" or base == "python"
        },
    }
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    dockerfile = f"docker/{kind}.Dockerfile"
    _run(
        [
            *("docker", "build", "--network=none", *given),
            *(f"--tag={name}", f"--file={dockerfile}", "."),
        ]
    )
    inspect = ["docker", "image", "inspect", name]
    shown = subprocess.run(inspect, capture_output=True, check=True).stdout
    (image,) = json.loads(shown)
    return BuiltImage(name=name, image_id=image["Id"], size_b=image["Size"])


def _copy(files: list[Path], directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for file in files:
        shutil.copy2(file, directory)


def _git(*arguments: str) -> str:
    """Ask git about this clone; the answer is empty in a source archive."""
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607 - wherever the path has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = last_lines(done.stdout)
        raise RetryableError(
            "IMAGE_NOT_BUILT",
            saw=f"{' '.join(command[:2])} ended with {done.returncode}:\n{tail}",
            why="An image needs all of its layers.",
            fix="Correct the error in the last lines. If no registry is reachable, "
            "tallyweir images --stand-ins builds the bases from Debian's packages.",
        )


#: Python of the images' base, even if another version runs here.
PYTHON_VERSION = "3.11"

#: Tags of wheels that run on Debian 12, newest first.
_GLIBC = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")


def fetch_wheels(directory: Path, locks: tuple[str, ...]) -> None:
    """Fill a directory with the packages that the locks list, and with nothing else.

    Args:
        directory: Emptied first; pip's own cache saves the second download.
        locks: Names of lock files at the root of the repository.

    Raises:
        RetryableError: ``WHEELS_NOT_FETCHED``.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    machine = platform.machine()
    tags = [f"--platform={glibc}_{machine}" for glibc in _GLIBC]
    for lock in locks:
        failure = _failure_of_pip(
            "download",
            *("--require-hashes", f"--python-version={PYTHON_VERSION}"),
            *("--implementation=cp", *tags),
            *("-d", str(directory), "-r", str(ROOT / lock)),
        )
        if failure is not None:
            raise RetryableError(
                "WHEELS_NOT_FETCHED",
                saw=f"pip did not fetch all packages of {lock}:\n{failure}",
                why="The image holds exactly the packages of its lock.",
                fix="Check that pip can reach a package index, then start again.",
            )


def build_wheel(directory: Path) -> Path:
    """Build the wheel of this checkout, with the backend of the development lock.

    Args:
        directory: Emptied first.

    Returns:
        The wheel, the directory's only file.

    Raises:
        SetUpError: The development lock could not be installed.
        ConfigurationError: ``WHEEL_NOT_BUILT``.
    """
    install(DEVELOPMENT_LOCK)
    shutil.rmtree(directory, ignore_errors=True)
    failure = _failure_of_pip("wheel", str(ROOT), "-w", str(directory))
    if failure is not None:
        raise ConfigurationError(
            "WHEEL_NOT_BUILT",
            saw=f"pip did not build the wheel:\n{failure}",
            why="The images contain what the wheel installs.",
            fix="Correct what the last lines name in pyproject.toml.",
        )
    (wheel,) = directory.glob("*.whl")
    return wheel


def _failure_of_pip(command: str, *arguments: str) -> str | None:
    """Run pip; return the last lines of its output if it fails."""
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-m", "pip", command),
            *("--disable-pip-version-check", "--no-input", "--progress-bar=off"),
            *("--no-deps", "--no-build-isolation", *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    return last_lines(done.stdout)
