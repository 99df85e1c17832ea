"""The paths of what an operator checks before an act, and of past acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.kafka.pipeline_offsets import (
    compare_offsets,
    read_stored_offsets,
)
from tallyweir.services.monitor.guard import Guard
from tallyweir.services.monitor.home_reader import HomeReader, json_answer
from tallyweir.services.monitor.tokens import Role
from tallyweir.services.operate.steering.scaling_bounds import bounds_told
from tallyweir.services.operate.steering.versions_json import planned_versions
from tallyweir.sinks.postgres import audit, steering

_ACTS_MAX = 500
_DECISIONS = 10


def add_steering_paths(
    pages: FastAPI, home: HomeReader, bootstrap: str, guard: Guard
) -> None:
    """Add the paths of a pipeline's page of acts.

    Args:
        pages: The application.
        home: Reads the home database.
        bootstrap: Address of the broker.
        guard: Decides which token may see rows of results.
    """

    @pages.get("/api/pipelines/{name}/steering")
    def steering_of(name: str) -> Response:
        return home.answer(lambda c: _steering(c, name))

    @pages.get("/api/pipelines/{name}/versions")
    def versions(name: str) -> Response:
        return home.answer(lambda c: planned_versions(c, name))

    @pages.get("/api/pipelines/{name}/acts")
    def acts(
        name: str,
        before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        limit: Annotated[int, Query(ge=1, le=_ACTS_MAX)] = 50,
    ) -> Response:
        return home.answer(
            lambda c: audit.read_acts(c, name, before=before, limit=limit)
        )

    @pages.get("/api/pipelines/{name}/offsets")
    def offsets(name: str) -> Response:
        stored = home.read(lambda c: read_stored_offsets(c, name))
        return json_answer(compare_offsets(bootstrap, stored, now=datetime.now(UTC)))

    @pages.get("/api/pipelines/{name}/diff/{fork}")
    def diff(request: Request, name: str, fork: str) -> Response:
        # The differences are rows, which hold data of producers.
        guard.require(request, Role.VIEWER)
        return home.answer(lambda c: steering.diff(c, name, fork))


def _steering(connection: Connection[TupleRow], name: str) -> Mapping[str, object]:
    scaling = audit.read_scaling(connection, name, limit=_DECISIONS)
    snapshots = steering.list_snapshots(connection, name)
    return {
        "snapshots": [asdict(replace(one, definition={})) for one in snapshots],
        "forks": audit.read_forks(connection, name),
        "bounds": bounds_told(scaling.bounds),
        "decisions": scaling.decisions,
    }
