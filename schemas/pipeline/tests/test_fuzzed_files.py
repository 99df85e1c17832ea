"""Damaged pipeline files: a pipeline, or an error that says where, and nothing else."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import Outbox, PipelineError, load_pipeline
from tallyweir.schemas.pipeline.tests.pipelines import SHIPPED
from tallyweir.schemas.pipeline.tests.test_pipeline_file import VALID

#: 10,000 before a release; ``TALLYWEIR_FUZZ_FILES`` says how many.
_FILES = int(os.environ.get("TALLYWEIR_FUZZ_FILES", "400"))
_FILES_PER_SEED = 100

_WORD = re.compile(r"[A-Za-z0-9_.*()<>]+")
_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")
_HOSTILE = (
    *('"', "'", "`", ";", "--", "/*", "*/", "\\", "\x00", "\u202e", "\ud83d\ude00"),
    *('a"; DROP TABLE x; --', "' OR ''='", "a.b.c", "pg_catalog.pg_class", "A" * 64),
    *("&a", "*a", "!!python/object:os.system", "{", "}", "[", "]", ": ", "\n", "\t"),
    *("null", "true", "0x10", "1e999", "-1", "99999999999999999999", "2024-01-01"),
    *("NaN", "1 hour", "0 seconds", "(" * 200, "a " * 500),
)


@pytest.mark.parametrize("seed", range(_FILES // _FILES_PER_SEED))
def test_a_damaged_file_is_a_pipeline_or_an_error(tmp_path: Path, seed: int) -> None:
    """Whatever a file holds, it neither crashes nor smuggles a name in."""
    source = random.Random(seed)
    originals = [VALID, *(path.read_text() for path in sorted(SHIPPED.glob("*.yaml")))]
    path = tmp_path / "p.yaml"
    for _ in range(_FILES_PER_SEED):
        text = _damaged(source.choice(originals), source)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            pipeline = load_pipeline(path)
        except PipelineError:
            continue
        # What the ledger calls an outbox is the name of no table.
        tables = [
            output.table
            for output in pipeline.outputs
            if not isinstance(output, Outbox)
        ]
        assert [table for table in tables if not _TABLE.fullmatch(table)] == [], text


def _damaged(text: str, source: random.Random) -> str:
    """Change a file in one to four places, each in one of five ways."""
    for _ in range(source.randint(1, 4)):
        words = list(_WORD.finditer(text))
        lines = text.splitlines(keepends=True)
        way = source.randrange(5) if words and lines else 3
        if way == 0:
            word = source.choice(words)
            text = text[: word.start()] + source.choice(_HOSTILE) + text[word.end() :]
        elif way == 1:
            lines.pop(source.randrange(len(lines)))
            text = "".join(lines)
        elif way == 2:
            at = source.randrange(len(lines))
            indent = " " * source.randint(0, 3)
            lines.insert(at, indent + source.choice(lines))
            text = "".join(lines)
        elif way == 3:
            at = source.randint(0, len(text))
            text = text[:at] + source.choice(_HOSTILE) + text[at:]
        else:
            one, other = source.choice(words), source.choice(words)
            text = text[: one.start()] + other.group() + text[one.end() :]
    return text
