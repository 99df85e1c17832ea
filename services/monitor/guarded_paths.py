"""The paths that need a token: the content of records, and acts.

The home database keeps the records that became no result. All other records come from
Kafka, while it keeps them and while the topic is still the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, ValidationError

from tallyweir.services.ingest.request import ClientGoneError, read_body
from tallyweir.services.monitor.acts import ACTS, ActCall, ActKind, Arguments
from tallyweir.services.monitor.guard import Guard
from tallyweir.services.monitor.home_reader import HomeReader, json_answer
from tallyweir.services.monitor.quoting_paths import NAME_MAX, explained
from tallyweir.services.monitor.tokens import Role
from tallyweir.services.operate.pipeline_json import samples_json
from tallyweir.services.operate.redrive.letter_report import content_json, letter_json
from tallyweir.services.operate.redrive.source_records import (
    Headers,
    KnownRecord,
    ReadRecord,
    SourceRecords,
)
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.audit import AuditedSource, Explanation
from tallyweir.sinks.postgres.audit.why.explanation import Sighting
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.steering import RecordPosition, act_as
from tallyweir.sinks.protocol.errors import TallyweirError

#: Most bytes of a request for an act: it holds a few values that a person typed.
ACT_BYTES_MAX = 64 << 10
#: Acts at work at once. Each has its own thread and connection, which reads cannot use.
_ACTS_AT_WORK_MAX = 8

_Partition = Annotated[int, InPath(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, InPath(ge=0, le=2**63 - 1)]


class AskedAct(BaseModel):
    """The body of a request for an act."""

    model_config = ConfigDict(extra="forbid", strict=True)

    arguments: dict[str, str]
    dry_run: bool


class GuardedPaths:
    """Answers the paths that need a token.

    Args:
        home: Reads the home database.
        acts_dsn: Connection string of the home database, for the login that does acts.
        bootstrap: Address of the broker.
        guard: Decides which token may do what.
        contracts: The folder of contracts that are files next to pipeline files.
    """

    def __init__(
        self,
        home: HomeReader,
        *,
        acts_dsn: str,
        bootstrap: str,
        guard: Guard,
        contracts: Path | None,
    ) -> None:
        self._home = home
        self._acts_dsn = acts_dsn
        self._bootstrap = bootstrap
        self._contracts = contracts
        self._guard = guard
        self._acting = CapacityLimiter(_ACTS_AT_WORK_MAX)
        self._log = structlog.get_logger()

    def add_to(self, pages: FastAPI) -> None:
        """Add the paths to an application."""
        pages.exception_handler(RefusedError)(_answer_refusal)
        self._add_acts(pages)

        @pages.get("/api/access")
        def access(request: Request) -> Response:
            token = self._guard.viewer(request)
            if token is None:
                return json_answer({"name": None, "has_tokens": self._guard.has_tokens})
            return json_answer(
                {
                    "name": token.name,
                    "role": token.role.value,
                    "acts": [
                        act.as_json()
                        for act in ACTS.values()
                        if token.role.may(act.role)
                    ],
                }
            )

        @pages.get("/api/pipelines/{name}/letters/{topic}/{partition}/{offset}")
        def letter(
            request: Request,
            name: str,
            topic: str,
            partition: _Partition,
            offset: _Offset,
        ) -> Response:
            token = self._guard.require(request, Role.VIEWER)
            self._log.info("payload shown", pipeline=name, by=token.name)
            place = RecordPosition(topic=topic, partition=partition, offset=offset)
            return json_answer(self._letter(name, place))

        @pages.get("/api/pipelines/{name}/samples")
        def samples(request: Request, name: str) -> Response:
            token = self._guard.require(request, Role.VIEWER)
            self._log.info("samples shown", pipeline=name, by=token.name)
            found = self._home.read(lambda c: audit.read_samples(c, name))
            return json_answer(samples_json(name, found))

        @pages.get("/api/pipelines/{name}/copies")
        def copies(
            request: Request,
            name: str,
            event_id: Annotated[str, Query(min_length=1, max_length=NAME_MAX)],
        ) -> Response:
            token = self._guard.require(request, Role.VIEWER)
            self._log.info("payloads shown", pipeline=name, by=token.name)
            return json_answer(self._copies(name, event_id))

    def _add_acts(self, pages: FastAPI) -> None:
        @pages.post("/api/pipelines/{name}/acts/{act}")
        async def do(request: Request, name: str, act: str) -> Response:
            found = ACTS.get(act)
            role = Role.OPERATOR if found is None else found.role
            # Check the token before reading the body: any client can send one.
            token = self._guard.require_act(request, role)
            if found is None:
                raise RefusedError(
                    "ACT_UNKNOWN",
                    status=404,
                    saw=f"There is no act {act[:40]!r}.",
                    why="Nothing was done.",
                    fix=f"Ask for one of {', '.join(ACTS)}.",
                )
            if request.query_params:
                raise RefusedError(
                    "ACT_ARGUMENT",
                    status=422,
                    saw="The address has a query.",
                    why="The monitor reads arguments only from the body, so it changed "
                    "nothing.",
                    fix="Send the arguments in the body.",
                )
            try:
                asked = await _read_asked(request)
            except ClientGoneError:
                # The client has gone, so it does not read the answer.
                return Response(status_code=400)
            told = await to_thread.run_sync(
                self._do, found, name, asked, token.name, limiter=self._acting
            )
            return json_answer({"told": told})

    def _letter(self, pipeline: str, place: RecordPosition) -> dict[str, object]:
        letter = self._home.read(
            lambda c: audit.read_letter(
                c,
                pipeline,
                topic=place.topic,
                partition=place.partition,
                offset=place.offset,
            )
        )
        record = KnownRecord(position=place, key=letter.key, payload=letter.payload)
        return letter_json(letter, self._headers(record), self._contracts)

    def _copies(self, pipeline: str, event_id: str) -> list[dict[str, Any]]:
        found = self._home.read(lambda c: explained(c, pipeline, event_id))
        source = self._home.read(lambda c: audit.read_source(c, pipeline))
        topic_ids = self._home.read(lambda c: audit.read_topic_ids(c, pipeline))
        copies = sightings_of(found)
        records = read_from_kafka(self._bootstrap, list(copies), topic_ids)
        return copies_json(copies, records, source, self._contracts)

    def _headers(self, record: KnownRecord) -> Headers | None:
        try:
            with closing(SourceRecords(self._bootstrap)) as records:
                return records.read_headers([record]).get(record.position)
        except TallyweirError:
            # Show what the home database has even if Kafka does not answer.
            return None

    def _do(self, act: ActKind, pipeline: str, asked: AskedAct, name: str) -> list[str]:
        """Run an act to its end, even if the browser stops waiting for the answer."""
        arguments = Arguments(act.fields, asked.arguments)
        with connect(
            self._acts_dsn, application_name="tallyweir monitor acts"
        ) as connection:
            act_as(connection, name)
            told = act.do(
                ActCall(
                    home=connection,
                    bootstrap=self._bootstrap,
                    pipeline=pipeline,
                    arguments=arguments,
                    dry_run=asked.dry_run,
                )
            )
        if not asked.dry_run:
            # For an act that leaves no row, only this line keeps the reason.
            self._log.info(
                "act",
                act=act.name,
                pipeline=pipeline,
                by=name,
                reason=arguments.reason,
            )
        return list(told)


async def _read_asked(request: Request) -> AskedAct:
    body = await read_body(request.receive, declared=None, bytes_max=ACT_BYTES_MAX)
    try:
        return AskedAct.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error


async def _answer_refusal(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedError)
    headers = (
        {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    )
    return JSONResponse(error.as_problem(), status_code=error.status, headers=headers)


Records = Mapping[RecordPosition, ReadRecord]


def sightings_of(found: Explanation) -> dict[RecordPosition, list[Sighting]]:
    """Return the sightings of each copy, in the order of the explanation."""
    copies: dict[RecordPosition, list[Sighting]] = {}
    for one in found.sightings:
        place = RecordPosition(
            topic=one.position.topic,
            partition=one.position.partition,
            offset=one.offset,
        )
        copies.setdefault(place, []).append(one)
    return copies


def read_from_kafka(
    bootstrap: str,
    places: Sequence[RecordPosition],
    topic_ids: Mapping[str, str],
) -> Records:
    """Read those records that Kafka still has; none if Kafka does not answer.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        places: Positions of the records.
        topic_ids: IDs of the topics that were read: a topic that was deleted and
            created again has another ID.
    """
    broker, _ = KafkaAdmin(
        bootstrap, *({one.topic for one in places} & set(topic_ids))
    ).read_there()
    same = {
        place.topic
        for place, at in (broker or {}).items()
        if at.topic_id == topic_ids[place.topic]
    }
    try:
        with closing(SourceRecords(bootstrap)) as records:
            return records.read_whole(one for one in places if one.topic in same)
    except TallyweirError:
        return {}


def copies_json(
    copies: Mapping[RecordPosition, Sequence[Sighting]],
    records: Records,
    source: AuditedSource,
    beside: Path | None,
) -> list[dict[str, Any]]:
    """Return each copy with its record.

    Args:
        copies: The copies as ``sightings_of`` returns them.
        records: Their records in Kafka.
        source: Source of the pipeline.
        beside: The folder of contracts that are files.
    """
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "offset": place.offset,
            "fates": list(dict.fromkeys(one.fate.value for one in sightings)),
            "contracts": list(source.schemas),
            **_content(sightings, records.get(place), source, beside),
        }
        for place, sightings in copies.items()
    ]


def _content(
    sightings: Sequence[Sighting],
    record: ReadRecord | None,
    source: AuditedSource,
    beside: Path | None,
) -> dict[str, Any]:
    kept = next((one for one in sightings if one.payload is not None), None)
    if kept is None and record is None:
        return {"is_there": False}
    held = record if kept is None else kept
    assert held is not None
    return {
        "is_there": True,
        **content_json(
            key=held.key,
            payload=held.payload,
            headers=None if record is None else record.headers,
            source=source,
            beside=beside,
        ),
    }
