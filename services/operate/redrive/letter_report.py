"""Shows a dead letter with its payload in hex, and decoded as far as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.payload_report import PayloadReport, report_payload
from tallyweir.services.operate.redrive.source_records import Headers
from tallyweir.sinks.postgres.audit import AuditedSource, WholeLetter

#: Most bytes of a payload that are shown; the table has the rest.
HEX_BYTES_MAX = 4_096


def letter_json(
    letter: WholeLetter, headers: Headers | None, beside: Path | None
) -> dict[str, Any]:
    """Return a dead letter with its record, for users who may see records.

    Args:
        letter: The letter in the home database.
        headers: Headers of its record; None if its topic no longer has it, or was not
            asked.
        beside: The pipeline file, or the folder of the contracts that are files.
    """
    return {
        "reason": letter.reason,
        "detail": letter.detail,
        "event_id": letter.event_id,
        "batch": letter.sequence,
        "kafka_timestamp": letter.kafka_timestamp,
        **content_json(
            key=letter.key,
            payload=letter.payload,
            headers=headers,
            source=letter.source,
            beside=beside,
        ),
        "contracts": list(letter.source.schemas),
        "redrives": [asdict(one) for one in letter.redrives],
    }


def content_json(
    *,
    key: bytes | None,
    payload: bytes | None,
    headers: Headers | None,
    source: AuditedSource,
    beside: Path | None,
) -> dict[str, Any]:
    """Return the content of a record, in hex and decoded as far as possible.

    Args:
        key: Key of the record.
        payload: Value of the record.
        headers: Headers of the record; None if unknown.
        source: What the pipeline reads that has read the record.
        beside: The pipeline file, or the folder of the contracts that are files.
    """
    report = _report(payload, source, beside)
    return {
        "headers": None if headers is None else _header_texts(headers),
        "key_hex": _hex(key),
        "payload_hex": _hex(payload),
        "payload_bytes": None if payload is None else len(payload),
        "decoded": None if report is None else asdict(report),
    }


def _report(
    payload: bytes | None, source: AuditedSource, beside: Path | None
) -> PayloadReport | None:
    try:
        contracts = load_event_contracts(source.schemas, beside, source.registered)
    except ContractError:
        # The contract is a file somewhere else; show only the bytes.
        return None
    return report_payload(payload, contracts)


def told(found: Mapping[str, Any]) -> Sequence[str]:
    """Return the result of ``letter_json`` as lines for people."""
    lines = [
        f"{found['reason']}: {found['detail']}",
        f"batch {found['batch']}",
        f"Kafka's timestamp: {found['kafka_timestamp'] or '-'}",
        f"ID: {found['event_id'] or 'unreadable'}",
    ]
    if found["headers"] is None:
        lines.append(
            "headers: unknown, because the topic no longer has the record, or a "
            "batch run read it"
        )
    elif not found["headers"]:
        lines.append("headers: none")
    else:
        lines += [f"header {name}: {value}" for name, value in found["headers"]]
    lines.append(f"key (hex): {found['key_hex'] or '-'}")
    lines.append(f"payload (hex): {found['payload_hex'] or '-'}")
    lines += _told_decoded(found["decoded"], found["contracts"])
    for one in found["redrives"]:
        place = (
            "not known whether it was sent"
            if one["new_offset"] is None
            else f"now at partition {one['new_partition']} offset {one['new_offset']}"
        )
        lines.append(
            f"sent again at {one['asked_at']} by {one['asked_by']}: {one['reason']}; "
            f"{place}"
        )
    return lines


def _told_decoded(
    decoded: Mapping[str, Any] | None, contracts: Sequence[str]
) -> list[str]:
    if decoded is None:
        return [
            (
                f"not decoded: {', '.join(contracts)} is a file next to the pipeline "
                "file; give the pipeline file instead of the name"
            )
        ]
    lines = [
        (
            f"schema id {decoded['schema_id'] or '-'}, written by "
            f"{decoded['writer'] or 'an unknown contract'}, read as "
            f"{', '.join(decoded['readers'])}"
        )
    ]
    lines += [
        f"  bytes {one['from_byte']} to {one['until_byte']}: {one['name']} "
        f"({one['type']}) = {one['value']}"
        for one in decoded["fields"]
    ]
    if decoded["failed_field"] is not None:
        lines.append(f"  byte {decoded['failed_at']}: {decoded['failed_field']} fails")
    problem = decoded["problem"]
    lines.append(
        "it decodes: sending it again may help" if problem is None else f"! {problem}"
    )
    return lines + [f"difference: {one}" for one in decoded["differences"]]


def _hex(content: bytes | None) -> str | None:
    if content is None:
        return None
    shown = content[:HEX_BYTES_MAX].hex()
    rest = len(content) - HEX_BYTES_MAX
    return f"{shown} and {rest} bytes more" if rest > 0 else shown


def _header_texts(headers: Headers) -> list[tuple[str, str | None]]:
    return [
        (name, None if value is None else value.decode(errors="backslashreplace"))
        for name, value in headers
    ]
