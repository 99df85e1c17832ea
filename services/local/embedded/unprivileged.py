"""Runs a program that refuses to run as root, as root.

Postgres refuses to start as user 0. If the user is root (in a container, on a build
machine), the program gets a user namespace of its own in which the same user has
another number. Files, permissions and signals stay those of root; no account is made,
and nothing is opened to other users. This module runs as a script, so that only the new
process changes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_INNER_ID = 1000


def unprivileged(command: list[str]) -> list[str]:
    """Return the command line that runs ``command`` as a user other than root."""
    if os.geteuid() != 0:
        return command
    return [sys.executable, "-I", __file__, *command]


def main() -> None:
    """Become user 1000 of a new namespace, and execute the given command."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        reason = os.strerror(ctypes.get_errno())
        sys.exit(
            f"FATAL: Postgres does not run as root, and this machine allows no user "
            f"namespace ({reason}): start Tallyweir as an ordinary user"
        )
    process = Path("/proc/self")
    # The kernel accepts a group map only from a process that cannot change its groups.
    (process / "setgroups").write_text("deny")
    (process / "uid_map").write_text(f"{_INNER_ID} {user} 1")
    (process / "gid_map").write_text(f"{_INNER_ID} {group} 1")
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
