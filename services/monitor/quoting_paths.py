"""The paths whose answers may quote records: complete only with a token.

The detail of a dead letter may hold a value of its record, and a line of a driver's log
may hold what Spark or Postgres said of a row. Reasons, codes, counts and positions need
no token.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import structlog
from fastapi import FastAPI, Query, Request, Response
from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.monitor.guard import Guard
from tallyweir.services.monitor.home_reader import HomeReader, json_answer
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.services.operate.pipeline_json import line_to_add
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.audit.fate import Fate
from tallyweir.sinks.postgres.records.driver_log import read_driver_log

_PAGE_ROWS_MAX = 500
#: The one part of a log line, apart from its event, that never quotes a record.
_CODE = "error_code"


def add_quoting_paths(pages: FastAPI, home: HomeReader, guard: Guard) -> None:
    """Add paths that quote no record, unless the request has a token.

    Args:
        pages: The application.
        home: The home database.
        guard: Decides which token may see records.
    """
    _add_dead_letters(pages, home, guard)

    @pages.get("/api/pipelines/{name}/why")
    def why(
        request: Request,
        name: str,
        event_id: Annotated[str, Query(min_length=1, max_length=NAME_MAX)],
    ) -> Response:
        may_quote = _may_quote(guard, request, name)
        return home.answer(
            lambda c: told_without_payloads(c, name, event_id, with_details=may_quote)
        )

    @pages.get("/api/pipelines/{name}/logs")
    def logs(
        request: Request,
        name: str,
        batch: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        limit: Annotated[int, Query(ge=1, le=_PAGE_ROWS_MAX)] = 100,
    ) -> Response:
        may_quote = _may_quote(guard, request, name)
        lines = home.read(
            lambda c: read_driver_log(
                c, name, sequence=batch, before=before, limit=limit
            )
        )
        if not may_quote:
            lines = [
                replace(one, detail={k: v for k, v in one.detail.items() if k == _CODE})
                for one in lines
            ]
        return json_answer(lines)

    @pages.get("/api/pipelines/{name}/unnamed-fields")
    def unnamed_fields(request: Request, name: str) -> Response:
        may_quote = _may_quote(guard, request, name)
        found = home.read(lambda c: audit.read_unnamed(c, name))
        return json_answer(
            [
                {
                    **asdict(one),
                    # A document may have values for names.
                    "path": one.path if may_quote else None,
                    "line": line_to_add(one.path) if may_quote else None,
                }
                for one in found
            ]
        )


def _add_dead_letters(pages: FastAPI, home: HomeReader, guard: Guard) -> None:
    @pages.get("/api/pipelines/{name}/dead-letters")
    def dead_letter_groups(request: Request, name: str) -> Response:
        unsaid = {} if _may_quote(guard, request, name) else {"last_detail": None}
        found = home.read(lambda c: audit.group_dead_letters(c, name))
        return json_answer([{**asdict(one), **unsaid} for one in found])

    @pages.get("/api/pipelines/{name}/dead-letters/{reason}")
    def dead_letters(
        request: Request,
        name: str,
        reason: str,
        skipped: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=_PAGE_ROWS_MAX)] = 50,
    ) -> Response:
        unsaid = {} if _may_quote(guard, request, name) else {"detail": None}
        found = home.read(
            lambda c: audit.read_dead_letters(
                c, name, reason, skipped=skipped, limit=limit
            )
        )
        return json_answer([{**asdict(one), **unsaid} for one in found])


def _may_quote(guard: Guard, request: Request, pipeline: str) -> bool:
    token = guard.viewer(request)
    if token is None:
        return False
    structlog.get_logger().info("details shown", pipeline=pipeline, by=token.name)
    return True


#: Most characters of an ID in a request.
NAME_MAX = 200


def explained(
    connection: Connection[TupleRow], pipeline: str, event_id: str
) -> audit.Explanation:
    """Find every trace of an ID, with the content of its records.

    Raises:
        TallyweirError: As ``audit.explain``.
    """

    def probe(key: bytes, text: str) -> tuple[bytes, ...]:
        return fingerprints_of(key, text, None)

    return audit.explain(connection, pipeline, event_id, probe)


def told_without_payloads(
    connection: Connection[TupleRow],
    pipeline: str,
    event_id: str,
    *,
    with_details: bool,
) -> dict[str, object]:
    """Tell what became of an event, without the content of its record.

    Args:
        connection: A connection to the home, not inside a transaction. It only reads.
        pipeline: Name of the pipeline.
        event_id: The producer's ID.
        with_details: Include the detail of a dead letter, which may quote its record.

    Raises:
        TallyweirError: As ``audit.explain``.
    """
    found = explained(connection, pipeline, event_id)
    bare = replace(
        found,
        sightings=tuple(
            replace(
                one,
                key=None,
                payload=None,
                # The detail of a filtered event is the condition in the pipeline's
                # file.
                detail=None
                if one.fate is Fate.DEAD and not with_details
                else one.detail,
            )
            for one in found.sightings
        ),
    )
    told = (
        audit.narrate(bare, lambda _payload: None)
        if bare.is_known
        else audit.narrate_unknown(bare, None)
    )
    return {"is_known": bare.is_known, "told": list(told)}
