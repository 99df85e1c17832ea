"""How a process reads a setting: from its environment, or from a file named there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tallyweir.sinks.protocol.errors import ConfigurationError

#: Suffix of a variable that names a file with the value.
FILE_SUFFIX = "_FILE"

HOME_DSN_VARIABLE = "TALLYWEIR_HOME_DSN"
#: A server on which a notebook makes its scratch databases.
SCRATCH_DSN_VARIABLE = "TALLYWEIR_SCRATCH_DSN"


def read_setting(environment: Mapping[str, str], name: str) -> str | None:
    """Return the setting, or None if neither variable is set.

    ``NAME`` holds the value itself. ``NAME_FILE`` names a file that holds it, which is
    the usual way to give secrets to containers: a file's content appears in no list of
    processes and in no description of a container. A line break at the file's end is
    not part of the value.

    Raises:
        ConfigurationError: ``SETTING_TWICE`` if both are set, or
            ``SETTING_UNREADABLE``. Neither error shows any part of the value.
    """
    path = environment.get(name + FILE_SUFFIX)
    if not path:
        return environment.get(name)
    if name in environment:
        raise ConfigurationError(
            "SETTING_TWICE",
            saw=f"Both {name} and {name}{FILE_SUFFIX} are set.",
            why="Tallyweir cannot know which of the two is meant.",
            fix="Unset one of them.",
        )
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigurationError(
            "SETTING_UNREADABLE",
            saw=f"{path}, which {name}{FILE_SUFFIX} names, cannot be read ({reason}).",
            why=f"The file must hold the value of {name}.",
            fix="Correct the path, or let this process's user read the file.",
        ) from None
