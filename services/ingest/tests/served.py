"""Topics of the tests: the ID in a field, in ``ce_id``, and in another header."""

from __future__ import annotations

from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.schemas.json_records import compile_reader
from tallyweir.services.ingest.served_topics import ServedTopic
from tallyweir.services.produce.source_section import SourceSection

PAGE_VIEW = load_contract("page_view.v1")


def serve(event_id: str, contract: Contract = PAGE_VIEW) -> ServedTopic:
    """A topic whose pipeline reads its IDs from ``event_id``."""
    types = {field.name: field.type for field in contract.fields}
    return ServedTopic(
        name="views",
        section=SourceSection(
            topics=("views",), schemas=(contract.reference,), event_id=event_id
        ),
        contract=contract,
        record_of=compile_reader(contract),
        id_field_type=types.get(event_id),
    )


BY_FIELD = serve("event_id")
BY_CE_ID = serve("header:ce_id")
BY_HEADER = serve("header:trace")


def page_view(event_id: str | None = "shop:1") -> dict[str, object]:
    """A good event; without an ID if it is None."""
    event: dict[str, object] = {
        "event_id": event_id,
        "user_id": 1,
        "page": "/",
        "country": "DE",
        "viewed_at": "2026-11-21T10:15:00Z",
        "value": 1.5,
    }
    return {name: value for name, value in event.items() if value is not None}
