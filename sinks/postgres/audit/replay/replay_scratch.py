"""The scratch databases in which a replay works."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Self

from tallyweir.sinks.postgres.audit.replay.replay_committed import Committed
from tallyweir.sinks.postgres.audit.replay.replay_rows import Side
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch_one
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.offsets import TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit.replay", "replay.sql")


class ReplayScratch:
    """Connections to the scratch databases, in autocommit; a context manager.

    Args:
        dsns: Connection strings, by the name of the database that each stands for.
        pipeline: The pipeline to replay.
    """

    def __init__(self, dsns: Mapping[str, str], pipeline: str) -> None:
        self._pipeline = pipeline
        self._opened = ExitStack()
        try:
            self._databases = {
                name: self._opened.enter_context(
                    connect(dsn, application_name="tallyweir replay", autocommit=True)
                )
                for name, dsn in dsns.items()
            }
        except BaseException:
            self._opened.close()
            raise
        self.home = self._databases[HOME]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def side(self) -> Side:
        """Return the replayed side, to compare it."""
        row = fetch_one(self.home, _SQL["identity"], pipeline=self._pipeline)
        return Side(
            is_replayed=True,
            databases=self._databases,
            pipeline=self._pipeline,
            number=row["pipeline_number"],
            installation=row["installation_id"],
            own={},
        )

    def take_key(self, committed: Committed) -> None:
        """Use the secret of the pipeline's home to file IDs and to find tombstones."""
        self.home.execute(_SQL["take_key"], {"key": committed.fingerprint_key})

    def stand_at(self, place: TopicPartition, topic_id: str, next_offset: int) -> None:
        """Set the offset at which the replay goes on reading a partition."""
        self.home.execute(
            _SQL["set_position"],
            {
                "pipeline": self._pipeline,
                "topic": place.topic,
                "partition": place.partition,
                "topic_id": topic_id,
                "next_offset": next_offset,
            },
        )

    def stand_after(self, sequence: int, watermark_us: int | None) -> None:
        """Set the last batch and the watermark as if the pipeline had published it."""
        self.home.execute(
            _SQL["set_progress"],
            {
                "pipeline": self._pipeline,
                "sequence": sequence,
                "watermark": to_datetime(watermark_us),
            },
        )

    def bury(
        self, committed: Committed, erasures: Collection[int], epoch: Epoch
    ) -> None:
        """Write the tombstones of some erasures, under a claim of the scratch home."""
        values = {"pipeline": self._pipeline, "epoch": epoch}
        for tomb in committed.tombstones:
            if tomb["epoch"] in erasures:
                kind = "entomb_position" if tomb["fingerprint"] is None else "entomb_id"
                self.home.execute(_SQL[kind], {**tomb, **values})
