"""A mutant: a patch, and the test that must fail when it is applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATCHES = Path(__file__).with_name("patches")

_KILLED_BY = re.compile(r"^Killed-by: (\S.*)$", re.MULTILINE)
#: Tests in this folder start servers of their own.
_WITH_SERVERS = "integration_tests/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One deliberate mistake.

    Attributes:
        name: The patch's name without ``.patch``.
        patch: The file.
        test: Identifier of the test that must fail, as pytest takes it.
    """

    name: str
    patch: Path
    test: str

    @property
    def needs_servers(self) -> bool:
        """Whether its test starts a broker and a database."""
        return self.test.startswith(_WITH_SERVERS)


def read_mutants(folder: Path = PATCHES) -> list[Mutant]:
    """Read the mutants of a folder, by name.

    Raises:
        ValueError: A patch does not name exactly one test.
    """
    found = []
    for patch in sorted(folder.glob("*.patch")):
        tests = _KILLED_BY.findall(patch.read_text("utf-8"))
        if len(tests) != 1:
            raise ValueError(f"{patch}: it needs one line Killed-by: TEST")
        found.append(Mutant(name=patch.stem, patch=patch, test=tests[0]))
    return found


def choose(mutants: list[Mutant], names: Sequence[str], *, all_: bool) -> list[Mutant]:
    """Choose mutants by name; without names, those whose tests need no server.

    Args:
        mutants: All of them.
        names: Of mutants, or beginnings of names.
        all_: Also take those whose tests start servers.

    Raises:
        ValueError: No mutant's name begins so.
    """
    for name in names:
        if not any(mutant.name.startswith(name) for mutant in mutants):
            raise ValueError(f"no mutant's name begins with {name}")
    if names:
        return [m for m in mutants if m.name.startswith(tuple(names))]
    return [m for m in mutants if all_ or not m.needs_servers]
