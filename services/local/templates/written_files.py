"""Writes a template's files into a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tallyweir.sinks.protocol.errors import ConfigurationError


def write_files(
    directory: Path, files: Mapping[str, bytes], *, replace: bool
) -> list[Path]:
    """Write all files; write nothing if a file exists that must not be replaced.

    Args:
        directory: Directory to write to; made when missing.
        files: Content by name, the pipeline file first.
        replace: Overwrite existing files of these names.

    Returns:
        The paths of the files, in the same order.

    Raises:
        ConfigurationError: ``FILE_EXISTS``, or ``FILE_UNWRITABLE``.
    """
    paths = [directory / name for name in files]
    there = [path for path in paths if path.exists()]
    if there and not replace:
        raise ConfigurationError(
            "FILE_EXISTS",
            saw=f"{', '.join(map(str, there))} already exists.",
            why="The file may hold your changes.",
            fix="Choose another --directory, or move it away.",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(
            "FILE_UNWRITABLE",
            saw=f"{directory} cannot be written ({error.strerror}).",
            why="The template's files go there.",
            fix="Choose another --directory.",
        ) from error
    return paths
