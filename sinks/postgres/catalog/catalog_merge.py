"""Merges the runs of a bucket into chunks, so that a later start reads less.

The resolver merges a bucket when it is closed: when it ends at or before the committed
watermark. Events that come later still add runs to it, which stay next to the chunks
until there are enough of them. An open bucket is merged whenever its runs have become
so many that a driver's start would take noticeably longer.

Chunks keep, for each ID, the batch that added it. So a merge changes no answer of the
catalog, and it does not matter when it happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.faultpoints import MergePoint, making
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.seen_ids.chunk import BucketMerge, Chunk, Entries

_SQL = load_statements("tallyweir.sinks.postgres.catalog", "chunks.sql")

#: The newest batches are left alone. A starting driver reads the catalog as it was
#: before a batch in doubt, and then need not pick earlier batches' IDs out of chunks.
_MARGIN_BATCHES = 2
#: The cost of runs is the number of their IDs, plus so many for each run: reading a run
#: costs a starting driver some 20 microseconds.
_IDS_PER_RUN = 64
#: Late runs of a merged bucket stay while they are read in a moment, or while they are
#: less than a quarter of its chunks and read in half a second: a merge writes the
#: whole bucket again, and late events make buckets of any size due again.
_LATE_IDS_KEPT = 1 << 17
_LATE_IDS_MAX = 1 << 21
_GROWTH = 4
#: Runs of an open bucket stay while they are read in about a second, or while they are
#: less than half of its chunks.
_OPEN_IDS_KEPT = 1 << 22
_OPEN_GROWTH = 2
#: IDs that are read or written in one transaction.
_IDS_AT_ONCE = 1 << 18
_NAME = "tallyweir resolver"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeablePipeline:
    """A pipeline that may have buckets to merge.

    Attributes:
        name: Its name in the home.
        number: Its number in the home.
        closed_through: The newest bucket that is closed.
        through_sequence: The newest batch whose runs are merged.
        false_positives: Rate of the filters.
    """

    name: str
    number: int
    closed_through: int
    through_sequence: int
    false_positives: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBucket:
    """The result of a merge."""

    pipeline: str
    bucket: int
    rows: int
    chunks: int
    ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    sequence: int
    chunk: int
    first: bytes
    ids: int


def read_mergeable(dsn: str) -> tuple[MergeablePipeline, ...]:
    """List the pipelines of a home database.

    Raises:
        TallyweirError: The database cannot be read.
    """
    with connect(dsn, application_name=_NAME) as connection, translated("merging IDs"):
        rows = connection.execute(_SQL["pipelines"], {"margin": _MARGIN_BATCHES})
        return tuple(
            MergeablePipeline(
                name=name,
                number=number,
                closed_through=closed_through,
                through_sequence=through,
                false_positives=FALSE_POSITIVES if rate is None else rate,
            )
            for name, number, closed_through, through, rate in rows
        )


def merge_next_bucket(
    dsn: str, pipeline: MergeablePipeline, directory: Path
) -> MergedBucket | None:
    """Merge the oldest bucket of a pipeline that is due, closed or not.

    Meanwhile drivers may publish batches and drop buckets. If another process is
    merging the same pipeline, this does nothing.

    Args:
        dsn: The home database.
        pipeline: As ``read_mergeable`` has listed it.
        directory: On a local disk; takes 32 bytes per ID of the bucket.

    Returns:
        The merged bucket; None if no bucket was due.

    Raises:
        TallyweirError: The database or the disk failed; or ``MERGE_OVERTAKEN``.

    Crash:
        Before the last transaction, the catalog is unchanged: written chunks are
        hidden, and the next merge of the bucket deletes them. After it, the chunks
        have replaced the runs.
    """
    with connect(dsn, application_name=_NAME) as connection, translated("merging IDs"):
        connection.execute(_SQL["settings"])
        got = connection.execute(
            _SQL["keep_others_out"], {"pipeline_number": pipeline.number}
        ).fetchone()
        due = connection.execute(
            _SQL["due_bucket"],
            {
                "pipeline": pipeline.name,
                "closed_through": pipeline.closed_through,
                "through_sequence": pipeline.through_sequence,
                "late_ids_kept": _LATE_IDS_KEPT,
                "late_ids_max": _LATE_IDS_MAX,
                "growth": _GROWTH,
                "open_ids_kept": _OPEN_IDS_KEPT,
                "ids_per_run": _IDS_PER_RUN,
                "open_growth": _OPEN_GROWTH,
            },
        ).fetchone()
        connection.commit()
        if got != (True,) or due is None:
            return None
        return _Merge(connection, pipeline, due[0], directory).run()


class _Merge:
    """One merge of one bucket.

    Args:
        connection: Holds the lock that keeps other merges of the pipeline out.
        pipeline: The pipeline of the bucket.
        bucket: A bucket that is due.
        directory: On a local disk.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        pipeline: MergeablePipeline,
        bucket: int,
        directory: Path,
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._bucket = bucket
        self._values = {
            "pipeline": pipeline.name,
            "pipeline_number": pipeline.number,
            "bucket": bucket,
            "through_sequence": pipeline.through_sequence,
        }
        self._merge = BucketMerge(directory, false_positives=pipeline.false_positives)
        self._oldest = pipeline.through_sequence
        self._newest = 0

    def run(self) -> MergedBucket:
        """Read the runs, write hidden chunks, and replace the runs by them."""
        rows = self._list_rows()
        try:
            self._read(rows)
            chunks = self._write()
        except OSError as error:
            raise RetryableError(
                "MERGE_FAILED",
                saw=f"The merged IDs could not be written ({error.strerror}).",
                why="The catalog is unchanged, but a starting driver has more of it "
                "to read.",
                fix="Free space for temporary files (TMPDIR): 32 bytes per ID.",
            ) from error
        with making(MergePoint.RUNS_REPLACED):
            self._replace(len(rows), chunks)
        return MergedBucket(
            pipeline=self._pipeline.name,
            bucket=self._bucket,
            rows=len(rows),
            chunks=chunks,
            ids=len(self._merge),
        )

    def _list_rows(self) -> list[_Row]:
        self._connection.execute(_SQL["sweep"], self._values)
        found = self._connection.execute(_SQL["list_rows"], self._values)
        rows = [
            _Row(sequence=sequence, chunk=chunk, first=first, ids=ids)
            for sequence, chunk, first, ids in found
        ]
        self._connection.commit()
        if not rows:
            # It has expired since it was found to be due.
            raise _overtaken(self._bucket)
        self._newest = rows[-1].sequence
        return rows

    def _read(self, rows: list[_Row]) -> None:
        for page in _pages(rows):
            begin, end = page[0], page[-1]
            with self._connection.cursor(binary=True) as cursor:
                found = cursor.execute(
                    _SQL["read_rows"],
                    {
                        **self._values,
                        "sequence": begin.sequence,
                        "chunk": begin.chunk,
                        "first": begin.first,
                        "last_sequence": end.sequence,
                        "last_chunk": end.chunk,
                        "last_first": end.first,
                    },
                ).fetchall()
            self._connection.commit()
            for oldest, fingerprints, payload_hashes, sequences in found:
                self._oldest = min(self._oldest, oldest)
                self._merge.add(
                    Entries.decode(
                        bucket=self._bucket,
                        oldest=oldest,
                        fingerprints=fingerprints,
                        payload_hashes=payload_hashes,
                        sequences=sequences,
                    )
                )

    def _write(self) -> int:
        written = 0
        page: list[dict[str, object]] = []
        ids = 0
        for chunk in self._merge.chunks():
            page.append(self._row_of(chunk))
            ids += len(chunk.entries)
            if ids >= _IDS_AT_ONCE:
                written += self._write_page(page)
                page, ids = [], 0
        return written + self._write_page(page)

    def _write_page(self, page: list[dict[str, object]]) -> int:
        if page:
            with making(MergePoint.CHUNKS_WRITTEN):
                try:
                    self._connection.cursor(binary=True).executemany(
                        _SQL["write_chunk"], page
                    )
                    self._connection.commit()
                except psycopg.errors.CheckViolation as error:
                    # The bucket's partition was dropped.
                    raise _overtaken(self._bucket) from error
        return len(page)

    def _row_of(self, chunk: Chunk) -> dict[str, object]:
        entries = chunk.entries
        fingerprints, payload_hashes, sequences = entries.encode(oldest=self._oldest)
        return {
            **self._values,
            "sequence": self._newest,
            "ids": len(entries),
            "first": fingerprints[:16],
            "last": fingerprints[-16:],
            "fingerprints": fingerprints,
            "payload_hashes": payload_hashes,
            "chunk": chunk.number,
            "chunks": self._merge.count,
            "oldest_sequence": self._oldest,
            "sequences": sequences,
            "filter": chunk.filter,
        }

    def _replace(self, rows: int, chunks: int) -> None:
        """Show the chunks and delete the rows that they were made from, at once.

        Raises:
            RetryableError: ``MERGE_OVERTAKEN``; nothing has changed.
        """
        connection = self._connection
        connection.execute(_SQL["await_forgetting"], self._values)
        gone = connection.execute(_SQL["take_runs_away"], self._values).fetchone()
        shown = connection.execute(
            _SQL["show_chunks"], {**self._values, "sequence": self._newest}
        )
        if gone != (rows, len(self._merge)) or shown.rowcount != chunks:
            connection.rollback()
            raise _overtaken(self._bucket)
        connection.commit()


def _pages(rows: list[_Row]) -> Iterator[list[_Row]]:
    """Cut rows into pages of about ``_IDS_AT_ONCE`` IDs, at least one row each."""
    page: list[_Row] = []
    ids = 0
    for row in rows:
        page.append(row)
        ids += row.ids
        if ids >= _IDS_AT_ONCE:
            yield page
            page, ids = [], 0
    if page:
        yield page


def _overtaken(bucket: int) -> RetryableError:
    return RetryableError(
        "MERGE_OVERTAKEN",
        saw=f"Bucket {bucket} changed while it was merged.",
        why="The bucket expired, or a batch run replaced its contents, so the merged "
        "copy is out of date.",
        fix="Nothing to do: nothing was changed, and the next round tries again.",
    )
