"""A pipeline whose contract is in a schema registry, with a producer that registers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from integration_tests.harness.command import run_command
from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.kept_spark import EndedDriver
from integration_tests.harness.readings import NOON, Sent
from tallyweir.schemas.formats.protobuf.proto_file import compile_source
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

_FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
#: What a producer writes next: a field more, one less, another order.
_SECOND = _FIRST | {
    "fields": [
        {"name": "coupon", "type": "string"},
        *(one for one in reversed(_FIRST["fields"]) if one["name"] != "note"),
    ]
}
#: What the pinned version cannot read.
_FOREIGN = _FIRST | {
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "amount", "type": "string"},
        _FIRST["fields"][3],
    ]
}
_JSON_SCHEMA: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["order_id"],
}
#: By default, a serialiser asks the registry for associations first. Apicurio 3.3.3
#: does not know them, and once in some hundred questions its 404 never arrives.
_SERIALISING = {"subject.name.strategy": topic_subject_name_strategy}
#: What the registry asks for; no driver may tell it.
PASSWORD = "told-by-no-one"
SCHEMAS = {"first": _FIRST, "second": _SECOND, "foreign": _FOREIGN}

_PIPELINE = """
    pipeline: readings
    source:
      topic: {{topic}}
      schema: registry
      event_id: order_id
      event_time: at
      watermark_delay: 1 hour
    outputs:
      - append: {{{{table: orders{condition}}}}}
"""


class RegistryWorld(DriverWorld):
    """What a test of a pipeline over a registry works in.

    Args:
        registry: The registry that drivers are told of.
        condition: Of the output; Spark then decodes the events too.
    """

    def __init__(
        self,
        directory: Path,
        kafka_bootstrap: str,
        home_dsn: str,
        registry: Apicurio,
        *,
        condition: str | None = None,
    ) -> None:
        super().__init__(directory, kafka_bootstrap, home_dsn)
        self.registry = registry
        where = "" if condition is None else f', where: "{condition}"'
        self.write_pipeline(_PIPELINE.format(condition=where))

    def orders(
        self, version: str, *numbers: int, topic: str | None = None
    ) -> list[Sent]:
        """Encode orders as Confluent's serialiser does, which registers the schema."""
        context = SerializationContext(topic or self.topic.name, MessageField.VALUE)
        with SchemaRegistryClient({"url": self.registry.url}) as client:
            write = AvroSerializer(
                client, json.dumps(SCHEMAS[version]), conf=_SERIALISING
            )
            return [
                Sent(value=write(_order(version, number), context))
                for number in numbers
            ]

    def documents(self, *numbers: int, **more: object) -> list[Sent]:
        """Write orders as Confluent's serialiser of JSON Schema does.

        Args:
            numbers: Of the orders.
            more: A text for each property that the schema has beside the first ones.
        """
        context = SerializationContext(self.topic.name, MessageField.VALUE)
        added = {name: {"type": "string"} for name in more}
        properties = {**_JSON_SCHEMA["properties"], **added}
        schema = json.dumps({**_JSON_SCHEMA, "properties": properties})
        with SchemaRegistryClient({"url": self.registry.url}) as client:
            write = JSONSerializer(schema, client, conf=_SERIALISING)
            return [Sent(value=write(_document(n) | more, context)) for n in numbers]

    def emit(self, *rows: Mapping[str, object], registry: bool = True) -> None:
        """Have the command ``emit`` send rows; it is told of the registry or not."""
        file = self.directory / "rows.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        self.command("emit", "--input", str(file), registry=registry)

    def command(
        self, name: str, *options: str, registry: bool = True, code: int = 0
    ) -> str:
        """Run a command on the pipeline file; it is told of the registry or not."""
        return run_command(
            *(name, str(self.pipeline_file), *options),
            variables={
                KAFKA_VARIABLE: self.topic.bootstrap,
                HOME_DSN_VARIABLE: self.home_dsn,
                **(self.registry.environment if registry else {}),
            },
            code=code,
        )

    def messages(
        self, files: Mapping[str, str], name: str, *rows: Mapping[str, Any]
    ) -> list[Sent]:
        """Write messages as Confluent's serialiser of Protobuf does.

        Args:
            files: The texts of ``orders.proto`` and of the files that it imports.
            name: The full name of the message.
            rows: The fields of each.
        """
        pool = descriptor_pool.DescriptorPool()
        with TemporaryDirectory() as folder:
            for file, text in files.items():
                (Path(folder) / file).write_text(text)
            compiled = compile_source(Path(folder) / "orders.proto")
        for one in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
            pool.Add(one)
        made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        context = SerializationContext(self.topic.name, MessageField.VALUE)
        with SchemaRegistryClient({"url": self.registry.url}) as client:
            write = ProtobufSerializer(made, client, _SERIALISING)
            return [Sent(value=write(made(**one), context)) for one in rows]

    def run(
        self, *, code: int = 0, environment: dict[str, str] | None = None
    ) -> EndedDriver:
        """Run a driver to the end of the topic."""
        told = self.registry.environment if environment is None else environment
        driver = self.run_to_the_end(environment=told, code=code)
        assert PASSWORD not in driver.text
        return driver

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the orders in the table."""
        return self.fetch("SELECT order_id, amount, note FROM orders ORDER BY 1")

    def dead(self) -> Sequence[tuple[Any, ...]]:
        """Return offset, reason and detail of the dead letters."""
        return self.fetch(
            "SELECT kafka_offset, reason, detail FROM tallyweir.dead_letter ORDER BY 1"
        )


def _document(number: int) -> dict[str, object]:
    return {"order_id": f"o{number:03}", "amount": number}


def _order(version: str, number: int) -> dict[str, Any]:
    order: dict[str, Any] = {"order_id": f"o{number:03}", "amount": number, "at": NOON}
    if version == "first":
        return {**order, "note": f"n{number}"}
    if version == "second":
        return {**order, "coupon": "c"}
    return {**order, "amount": str(number)}
