"""The data of charts: the newest batches, and the gauges of the same time."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Response
from psycopg import Connection
from psycopg.rows import TupleRow
from pydantic_core import to_json

from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.services.operate.gauged import gauges_json
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.records.pipeline_gauges import read_gauges

_SLOTS_MAX = 1_000
_SLOT_MAX_S = 86_400


class ChartPaths:
    """Answers requests for charts.

    Args:
        home: The home database.
    """

    def __init__(self, home: HomeReader) -> None:
        self._home = home

    def add_to(self, pages: FastAPI) -> None:
        """Add the path to an application."""

        @pages.get("/api/pipelines/{name}/charts")
        def charts(
            name: str,
            slot_s: Annotated[int, Query(ge=1, le=_SLOT_MAX_S)] = 10,
            slots: Annotated[int, Query(ge=1, le=_SLOTS_MAX)] = 180,
        ) -> Response:
            def read(connection: Connection[TupleRow]) -> dict[str, object]:
                return {
                    "slots": audit.read_charts(
                        connection, name, slot_s=slot_s, slots=slots
                    ),
                    "gauges": [
                        gauges_json(one)
                        for one in read_gauges(connection, name, seconds=slot_s * slots)
                    ],
                }

            return Response(
                to_json(self._home.read(read)), media_type="application/json"
            )
