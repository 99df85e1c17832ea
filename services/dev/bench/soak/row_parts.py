"""Counts and drops the rows of a table part by part, while a driver writes them.

Not every disk can hold the rows of half an hour. From time to time one transaction
renames the table and creates an empty one in its place. A batch is published in one
transaction too, so each batch is wholly in one part. Each part is then compared with
the ledger, as ``verify`` would do it: it must hold as many rows as its batches have
committed, and their offsets must add up to the batches' checksums. Then the part is
dropped.
"""

from __future__ import annotations

from psycopg import sql

from tallyweir.services.dev.bench.world.bench_world import BenchPipeline
from tallyweir.services.dev.bench.world.rates import wrong_result
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.bench.soak", "soak.sql")


class RowParts:
    """The parts of one table.

    Args:
        dsn: DSN of the home.
        pipeline: The pipeline that appends to the table.
        rows_per_part: The least number of rows in a part.
    """

    def __init__(
        self, dsn: str, pipeline: BenchPipeline, *, rows_per_part: int
    ) -> None:
        self.rows = 0
        self._dsn = dsn
        self._pipeline = pipeline
        self._rows_per_part = rows_per_part
        self._through_sequence = 0

    def drop_some(self, committed: int) -> None:
        """Count and drop a part, if there are enough rows.

        Args:
            committed: Events that all batches have committed so far.

        Raises:
            FatalError: ``BENCH_WRONG``: the rows differ from the ledger.
        """
        if committed - self.rows >= self._rows_per_part:
            self.drop_all()

    def drop_all(self) -> None:
        """Count and drop all rows that are there, while the driver may write more.

        Raises:
            FatalError: ``BENCH_WRONG``: the rows differ from the ledger.
        """
        names = {
            "table": sql.Identifier(self._pipeline.table),
            "part": sql.Identifier(f"{self._pipeline.table}_part"),
        }
        values: dict[str, object] = {
            "pipeline": self._pipeline.name,
            "after_sequence": self._through_sequence,
        }
        # Connect as the driver does, so that the new table is where the old one was.
        with connect(self._dsn, application_name="bench") as connection:
            # Wait for the batch that is being published, and make the next one wait.
            connection.execute(_SQL["rename_part"].format(**names))
            connection.execute(_SQL["begin_part"].format(**names))
            ((through,),) = connection.execute(_SQL["last_sequence"], values).fetchall()
            connection.commit()
            values["through_sequence"] = through
            (found,) = connection.execute(_SQL["count_part"].format(**names)).fetchall()
            (claimed,) = connection.execute(_SQL["claimed_part"], values).fetchall()
            if found != claimed:
                raise wrong_result(
                    f"Of the batches {self._through_sequence + 1} to {through} the "
                    f"table holds {found} rows and their offsets' sum instead of "
                    f"{claimed}."
                )
            connection.execute(_SQL["drop_part"].format(**names))
        self.rows += int(found[0])
        self._through_sequence = through
