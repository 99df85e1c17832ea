"""Read the records of Avro object container files as values that the codec writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import fastavro

from tallyweir.schemas.codec import EventRecord
from tallyweir.schemas.formats.avro.avro_values import fastavro_schema
from tallyweir.schemas.formats.avro.safety import parse_schema


class AvroFileError(Exception):
    """The file is damaged, or holds no records."""


def read_avro_file(path: Path) -> Iterator[EventRecord]:
    """Yield a file's records in order, by the schema in the file itself.

    Raises:
        AvroFileError: The file cannot be read; records before the damage were yielded.
        UnsafeContractError: Its schema allows payloads that kill a decoder.
        OSError: There is no such file.
    """
    with path.open("rb") as file:
        try:
            blocks = fastavro.block_reader(file)
            schema = json.loads(blocks.metadata["avro.schema"])
        except Exception as exc:
            # fastavro raises errors of any class if the bytes are not an Avro file.
            raise AvroFileError(f"not an Avro file ({exc})") from exc
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise AvroFileError("the file holds no records")
        parsed = fastavro_schema(parse_schema(schema))
        try:
            for block in blocks:
                # The stubs of fastavro lack the block's content.
                content = cast(Any, block).bytes_
                for _ in range(block.num_records):
                    record = fastavro.schemaless_reader(content, parsed, None)
                    yield cast(EventRecord, record)
        except Exception as exc:
            raise AvroFileError(f"the file is damaged ({exc!r})") from exc
