"""Memory that several processes share counts once, and files count apart."""

from __future__ import annotations

import os
from pathlib import Path

from tallyweir.services.dev.bench.world.resource_readings import Resident, parse_rollup

_ROLLUP = """\
55b52ebac000-7fffedb37000 ---p 00000000 00:00 0                          [rollup]
Rss:               90000 kB
Pss:               10600 kB
Pss_Dirty:          9000 kB
Pss_Anon:           8000 kB
Pss_File:           2000 kB
Pss_Shmem:           600 kB
Shared_Clean:      70000 kB
"""


def test_shares_are_told_apart_by_what_they_are_of() -> None:
    """A cache that servers share is theirs; a file's pages can be had again."""
    found = parse_rollup(_ROLLUP.splitlines())
    assert Resident(own=8_600 * 1024, files=2_000 * 1024) == found


def test_parts_add_up() -> None:
    """A part has several processes."""
    both = Resident(own=3, files=1) + Resident(own=4, files=10)
    assert Resident(own=7, files=11) == both


def test_what_the_kernel_says_of_this_process_is_read() -> None:
    """It has more memory than files that it shares with nobody, and both."""
    text = Path(f"/proc/{os.getpid()}/smaps_rollup").read_text()
    found = parse_rollup(text.splitlines())
    assert found.own > 1_000_000
    assert found.files > 0
