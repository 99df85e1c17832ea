"""A shop for tests: orders, in two versions, and payments, as one stream."""

from __future__ import annotations

from pathlib import Path

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent, write_contract
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import Contract

INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
ID = {"name": "event_id", "type": "string"}
AT = {"name": "at", "type": INSTANT}
_AMOUNT = {"name": "amount", "type": "int"}
_CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
_PAYMENT_ID = {"name": "payment_id", "type": "string"}

#: As docs/pipelines.md has it, but for the names of the topics.
_PIPELINE = """
    pipeline: shop
    source:
      topic: [{topic}, {topic}-payments]
      schema: [order.v2.avsc, payment.v1.avsc]
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    outputs:
      - append: {{table: events, columns: [event_id, amount, currency, payment_id]}}
      - append:
          table: payments
          columns: [payment_id, amount]
          where: payment_id IS NOT NULL
      - append: {{table: ordered, columns: [event_id], where: kafka_topic = '{topic}'}}
"""


def write_record(folder: Path, name: str, *fields: object) -> Contract:
    """Write the contract of a record of fields; its name is that of the file."""
    record = name.partition(".")[0].title()
    schema: dict[str, object] = {"type": "record", "name": record}
    return write_contract(folder / name, {**schema, "fields": list(fields)})


class Shop(DriverWorld):
    """A pipeline of orders, in two versions, and payments, each with a topic."""

    def __init__(self, directory: Path, kafka_bootstrap: str, home_dsn: str) -> None:
        super().__init__(directory, kafka_bootstrap, home_dsn)
        self.payments = WrittenTopic(kafka_bootstrap, f"{self.topic.name}-payments")
        self.payments.create(2)
        self.old_order = write_record(directory, "order.v1.avsc", ID, AT, _AMOUNT)
        self.new_order = write_record(
            directory, "order.v2.avsc", _CURRENCY, ID, AT, _AMOUNT
        )
        self.payment = write_record(
            directory,
            "payment.v1.avsc",
            ID,
            AT,
            _PAYMENT_ID,
            {"name": "amount", "type": ["null", "int"]},
        )
        self.write_pipeline(_PIPELINE)

    @property
    def orders(self) -> WrittenTopic:
        return self.topic

    def ordered(
        self,
        event_id: str,
        amount: int,
        currency: str | None = None,
        *,
        fate: str = "committed",
        partition: int = 0,
    ) -> Sent:
        """An order, of the old version if it has no currency."""
        record: dict[str, object] = {"event_id": event_id, "at": NOON, "amount": amount}
        value = (
            encode(self.old_order, record)
            if currency is None
            else encode(self.new_order, {**record, "currency": currency})
        )
        return Sent(value=value, fate=fate, partition=partition)

    def paid(
        self,
        event_id: str,
        payment_id: str,
        amount: int | None,
        *,
        fate: str = "committed",
        partition: int = 0,
    ) -> Sent:
        """A payment."""
        record = {
            "event_id": event_id,
            "at": NOON,
            "payment_id": payment_id,
            "amount": amount,
        }
        value = encode(self.payment, record)
        return Sent(value=value, fate=fate, partition=partition)
