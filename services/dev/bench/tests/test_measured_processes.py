"""Memory that several processes share counts once, and files do not count."""

from __future__ import annotations

import os
from pathlib import Path

from tallyweir.services.dev.bench.world.resource_readings import parse_rollup

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


def test_what_belongs_to_files_is_left_out() -> None:
    """A cache that servers share is theirs; a file's pages can be had again."""
    assert 8_600 * 1024 == parse_rollup(_ROLLUP)


def test_what_the_kernel_says_of_this_process_is_read() -> None:
    """It has memory of its own."""
    text = Path(f"/proc/{os.getpid()}/smaps_rollup").read_text()
    assert parse_rollup(text) > 1_000_000
