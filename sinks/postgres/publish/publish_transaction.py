"""The home's publish transaction: everything that a batch changes there, or nothing.

The steps, in order:

1. lock the pipeline's row, so that publish transactions of one pipeline queue up;
2. fence and compare the offsets, by what is read under the lock;
3. write the ledger: batch and partitions; for a batch run, its name and inputs, and
   take away what it replaces;
4. move events that became no result, and the seen IDs;
5. advance offsets and watermark;
6. have each output move its voted rows, check their number, and settle windows;
7. write what the batch made of each output;
8. change keyed state and timers to what phase 2b voted for;
9. record the branches that were prepared in other databases (the decision), samples if
   the pipeline keeps them, and what the batch has cost;
10. COMMIT, with ``synchronous_commit = on``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from psycopg.types.json import Json

from tallyweir.sinks.postgres.ledger.stored_state import lock_stored_state, read_decided
from tallyweir.sinks.postgres.outputs.output import RowRefusedError, VotedRows
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.table_trouble import explain_failure
from tallyweir.sinks.postgres.publish.publish_clock import MEASURES_KEPT, PublishClock
from tallyweir.sinks.postgres.publish.publish_moves import (
    OutputMoves,
    corrections_of,
    move_keyed,
    publish_values,
    write_run,
)
from tallyweir.sinks.postgres.server.columns import names
from tallyweir.sinks.postgres.server.connection import abandon, standbys_waited_for
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.naming import HOME, TableNames
from tallyweir.sinks.postgres.server.sqlstate import translate
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import transactions_of
from tallyweir.sinks.postgres.staging.rejections import explain_refusal
from tallyweir.sinks.postgres.staging.staging_tables import EVENT_LOGS
from tallyweir.sinks.protocol.decisions import PublishDecision, decide_publish
from tallyweir.sinks.protocol.errors import OutcomeUnknownError
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId
from tallyweir.sinks.protocol.measures import aged, measures_json
from tallyweir.sinks.protocol.ports import BatchPlan, BatchTerms
from tallyweir.sinks.protocol.samples import samples_json
from tallyweir.sinks.protocol.votes import BatchTally, EventCounts, OutputTally

_SQL = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")

_Connection = psycopg.Connection[TupleRow]

_COUNT_NAMES = ("read", "committed", "duplicate", "dead", "late", "expired", "filtered")


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeOrder:
    """An order to the home: the batch to publish, as its tasks have voted for it."""

    plan: BatchPlan
    tally: BatchTally
    #: How often it was staged again without rows that a table refused.
    restagings: int
    #: A clock that was begun for this publish transaction.
    clock: PublishClock


class PostgresPublishTransaction:
    """The port ``PublishTransaction`` on a connection, which a failure closes."""

    def __init__(
        self,
        connection: _Connection,
        layout: PipelineLayout,
        order: HomeOrder,
        *,
        claim: EpochClaim,
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._claim = claim
        self._plan = order.plan
        self._tally = order.tally
        self._restagings = order.restagings
        self._clock = order.clock
        self._tables = TableNames(
            pipeline_number=claim.pipeline_number,
            epoch=claim.epoch,
            sequence=order.plan.sequence,
        )
        self._corrections = (
            corrections_of(connection, layout, self._tables, order.tally)
            if order.plan.run
            else None
        )
        with self._failures("locking the pipeline"), self._clock.spent_on("lock"):
            self._open()

    def _open(self) -> None:
        """Lock, fence, compare the offsets and settle the batch's terms."""
        self._execute("begin_settings")
        stored = lock_stored_state(self._connection, self._layout.pipeline)
        self.decision = decide_publish(
            key=self._plan.key,
            newest_epoch=stored.progress.newest_epoch,
            claim_kept=stored.nonce == self._claim.nonce,
            stored={
                topic_partition: position.next_offset
                for topic_partition, position in stored.progress.positions.items()
            },
            last_sequence=stored.progress.last_sequence,
            ranges=self._plan.ranges,
            after_sequence=self._plan.after_sequence,
        )
        if self.decision is PublishDecision.ALREADY_COMMITTED:
            # Locking the row is a write, so this COMMIT waits until the standbys have
            # the batch too. They may have lacked it when this driver found it.
            self._commit()
            return
        replaces = self._plan.run is not None and self._plan.run.replaces
        former_us = None if replaces else stored.progress.watermark_us
        assert former_us == self._plan.watermark_us, (
            "the watermark moved without offsets"
        )
        assert stored.progress.clocks == self._plan.clocks, (
            "the partitions' clocks moved without a batch"
        )
        self._clocks = self._plan.clocks_after(self._tally)
        watermark_us = self._plan.watermark_after(self._layout.clock_rule, self._tally)
        # Phase 2b fired timers by this same watermark, before the lock was held.
        assert self._tally.fired_through_us in {None, watermark_us}, (
            "timers were fired by another watermark"
        )
        self._terms = BatchTerms(
            sequence=SequenceNumber(stored.progress.last_sequence + 1),
            watermark_before_us=former_us,
            watermark_after_us=watermark_us,
            planned_at_us=self._plan.planned_at_us,
            decided=read_decided(
                self._connection, self._layout.pipeline, self._layout.branches
            )
            if self._layout.branches
            else {},
        )

    @property
    def terms(self) -> BatchTerms:
        return self._terms

    def move_rows(self) -> None:
        """Do everything but the decision; see ``PublishTransaction`` for the errors."""
        with self._failures("publishing a batch"):
            values = {
                **publish_values(self._claim.epoch, self._terms),
                "transactions": transactions_of(
                    self._connection, self._tables, self._tally.attempts
                ),
                "pipeline": self._layout.pipeline,
                "spark_batch_id": self._plan.key.spark_batch_id,
            }
            voted = VotedRows(
                connection=self._connection,
                tables=self._tables,
                tally=self._tally,
                values=values,
            )
            moves = OutputMoves(voted, self._clock)
            with self._clock.spent_on("ledger"):
                self._write_ledger(values)
                if self._plan.run is not None:
                    write_run(voted, self._layout, self._plan.run, self._corrections)
                self._move_event_logs(voted)
                self._advance(values)
            moves.run(self._layout.outputs_of(HOME), HOME)
            with self._clock.spent_on("ledger"):
                self._write_outputs(values, moves)
            if self._layout.keyed:
                with self._clock.spent_on("keyed_state"):
                    move_keyed(voted)

    def keep_alive(self) -> None:
        """Reset the timeout that ends the transaction of a paused driver."""
        with self._failures("waiting for branches"):
            self._connection.execute("SELECT")

    def commit(self, branches: Sequence[GlobalId]) -> None:
        """Commit, with the list of branches.

        Crash:
            Before the server has logged the COMMIT, nothing of the batch is visible,
            not even its offsets, so the next driver reads it again. After that, all of
            it is visible, and the next driver starts behind it.
        """
        with self._failures("writing the decision"):
            for gid in branches:
                self._execute(
                    "insert_batch_branch",
                    {
                        "pipeline": self._layout.pipeline,
                        "sequence": gid.sequence,
                        "branch": gid.branch,
                        "gid": str(gid),
                    },
                )
            self._write_samples()
            self._write_measures()
        with self._clock.committing():
            self._commit()

    def _commit(self) -> None:
        try:
            with standbys_waited_for(self._connection):
                self._connection.commit()
        except psycopg.OperationalError as error:
            self._connection.close()
            raise OutcomeUnknownError(
                "COMMIT_UNKNOWN",
                saw="The outcome of a batch's COMMIT is unknown: "
                + " ".join(str(error).split()),
                why="The batch may be in the tables or not.",
                fix="Nothing to do: the driver reads the offsets in Postgres next, "
                "which show the outcome.",
            ) from error
        except psycopg.Error as error:
            self._connection.close()
            raise translate(error, doing="committing a batch") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        abandon(self._connection)

    @contextmanager
    def _failures(self, doing: str) -> Iterator[None]:
        """Translate errors; if a table refused a row, find all refused rows."""
        try:
            yield
        except RowRefusedError as refusal:
            raise explain_refusal(
                self._connection,
                self._layout.outputs_of(HOME),
                self._tables,
                self._tally,
                refusal=refusal.cause,
                branch=HOME,
                doing=doing,
                corrections=self._corrections,
            ) from refusal
        except psycopg.Error as error:
            outputs = self._layout.outputs_of(HOME)
            found = explain_failure(self._connection, outputs, error, doing=doing)
            self._connection.close()
            raise found from error
        except BaseException:
            abandon(self._connection)
            raise

    def _write_samples(self) -> None:
        steps = samples_json(self._tally.samples)["steps"]
        if not steps:
            return
        with self._clock.spent_on("samples"):
            self._execute(
                "keep_samples",
                {
                    "pipeline": self._layout.pipeline,
                    "sequence": self._terms.sequence,
                    "steps": Json(steps),
                },
            )

    def _write_measures(self) -> None:
        measures = self._tally.measures + self._clock.measures()
        waited_s = self._began_after_s + self._clock.elapsed_s
        measures = replace(measures, ages=aged(measures.ages, waited_s))
        self._execute(
            "insert_measures",
            {
                "pipeline": self._layout.pipeline,
                "sequence": self._terms.sequence,
                "measures": Json(measures_json(measures)),
                "wal_from": self._wal_from,
                "kept": MEASURES_KEPT,
            },
        )

    def _write_ledger(self, values: Mapping[str, object]) -> None:
        waited_s = self._tally.measures.seconds.get("wait", 0.0)
        row = self._execute(
            "insert_batch",
            {
                **values,
                "checksum": self._tally.checksum,
                "lookups": Json(dict(self._plan.lookups)),
                "restagings": self._restagings,
                "guarantee": self._layout.guarantee.value,
                "since_staged_s": waited_s + self._clock.elapsed_s,
            },
        ).fetchone()
        assert row is not None
        self._wal_from: str = row[0]
        #: Seconds from the batch's plan until this transaction began.
        self._began_after_s: float = row[1] - self._clock.elapsed_s
        for planned in self._plan.ranges:
            seen = self._tally.partitions.get(planned.topic_partition)
            counts = seen.counts if seen else EventCounts()
            self._execute(
                "insert_batch_partition",
                {
                    **values,
                    "topic": planned.topic_partition.topic,
                    "partition": planned.topic_partition.partition,
                    "from_offset": planned.from_offset,
                    "until_offset": planned.until_offset,
                    **{name: getattr(counts, name) for name in _COUNT_NAMES},
                },
            )

    def _write_outputs(self, values: Mapping[str, object], moves: OutputMoves) -> None:
        for output in self._layout.outputs:
            tally = self._tally.outputs.get(output.table, OutputTally())
            self._execute(
                "insert_batch_output",
                {
                    **values,
                    "output_table": output.table,
                    "kind": output.kind.name,
                    "events": tally.events,
                    "rows": tally.rows,
                    "late": tally.late,
                    "late_kept": output.keeps_late,
                    "revised": tally.revised,
                    "output_checksum": tally.checksum,
                    "digests": Json(moves.digests.get(output.table, {})),
                },
            )

    def _move_event_logs(self, voted: VotedRows) -> None:
        """Move events that did not become results, and seen IDs."""
        for table, columns in EVENT_LOGS.items():
            if not voted.voted(table):
                continue
            part = "seen_ids" if table == "seen_id_run" else "event_logs"
            with self._clock.spent_on(part):
                moved = self._execute(
                    "move_event_log",
                    voted.values,
                    target=sql.Identifier("tallyweir", table),
                    staging=self._tables.staging(table),
                    columns=names(columns),
                )
            voted.check_moved(table, moved.rowcount)

    def _advance(self, values: Mapping[str, object]) -> None:
        for planned in self._plan.ranges:
            clock = self._clocks[planned.topic_partition]
            advanced = self._execute(
                "advance_position",
                {
                    **values,
                    "topic": planned.topic_partition.topic,
                    "partition": planned.topic_partition.partition,
                    "topic_id": self._plan.topic_ids[planned.topic_partition.topic],
                    "from_offset": planned.from_offset,
                    "until_offset": planned.until_offset,
                    "event_time_max": to_datetime(clock.event_time_max_us),
                    "active_at": to_datetime(clock.active_at_us),
                },
            )
            assert advanced.rowcount == 1, f"{planned} moved under the lock"
        moved = self._execute("advance_pipeline", values)
        assert moved.rowcount == 1, "the pipeline's row moved under its lock"

    def _execute(
        self,
        statement: str,
        values: Mapping[str, object] | None = None,
        **identifiers: sql.Composable,
    ) -> psycopg.Cursor[TupleRow]:
        composed = _SQL[statement].format(**identifiers)
        return self._connection.execute(composed, values)
