"""Users and rights in Kafka: each service gets only the rights that it needs.

A service's user is made from the same file in which the service finds its password, so
the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tallyweir.services.kafka.clients import admin_client
from tallyweir.sinks.kafka_settings import KAFKA_CONFIG_VARIABLE, client_config
from tallyweir.sinks.protocol.errors import ConfigurationError

#: The default of Kafka's own tools.
_ITERATIONS = 8_192
_TIMEOUT_S = 30.0
#: The drivers' consumer groups; Spark adds a number to each.
_DRIVER_GROUPS = "tallyweir-"
#: The groups that mirror committed offsets, so that Kafka's tools can show them.
_MIRROR_GROUPS = "tallyweir."
_RELAY_TRANSACTIONS = "tallyweir"
#: The name of every Kafka cluster in its rights.
_CLUSTER = "kafka-cluster"


class KafkaService(Enum):
    """The services that use Kafka, by what they do there."""

    INGEST = "ingest"
    PRODUCER = "producer"
    DRIVER = "driver"
    RELAY = "relay"
    VIEWER = "viewer"
    ALERTS = "alerts"


def grant_access(
    bootstrap: str,
    topics: Sequence[str],
    outbox_topics: Sequence[str],
    users: Sequence[tuple[KafkaService, Path]],
) -> list[str]:
    """Make the users and grant their rights on the topics; harmless to repeat.

    Args:
        bootstrap: ``host:port``; this process connects as an administrator.
        topics: The topics that pipelines read.
        outbox_topics: The topics that their outboxes write to.
        users: The services, each with the file of the Kafka settings with which it
            connects. Several services may share one user.

    Returns:
        The names of the users.

    Raises:
        ConfigurationError: ``KAFKA_CONFIG_INVALID`` or ``KAFKA_ACCESS_REFUSED``.
    """
    admin = admin_client(bootstrap)
    configs = [
        (service, client_config(bootstrap, {KAFKA_CONFIG_VARIABLE: str(path)}))
        for service, path in users
    ]
    logins = {config.get("sasl.username", ""): config for _, config in configs}
    credentials: list[UserScramCredentialAlteration] = [
        _credential(config) for config in logins.values()
    ]
    # Kafka's client refuses a list that holds the same right twice.
    rights = list(
        dict.fromkeys(
            right
            for service, config in configs
            for right in _rights(
                service, config["sasl.username"], topics, outbox_topics
            )
        )
    )
    try:
        for upserted in admin.alter_user_scram_credentials(
            credentials, request_timeout=_TIMEOUT_S
        ).values():
            upserted.result()
        for granted in admin.create_acls(rights, request_timeout=_TIMEOUT_S).values():
            granted.result()
    except KafkaException as error:
        raise ConfigurationError(
            "KAFKA_ACCESS_REFUSED",
            saw=f"Kafka at {bootstrap} refused the change: {error.args[0].str()}.",
            why="Only an administrator can create users and grant rights.",
            fix=f"Let {KAFKA_CONFIG_VARIABLE} name the settings of one, and see that "
            "the broker has an authorizer.",
        ) from error
    return sorted(logins)


def _credential(config: Mapping[str, str]) -> UserScramCredentialUpsertion:
    mechanism = {
        "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
        "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
    }.get(config.get("sasl.mechanism", ""))
    if mechanism is None:
        raise ConfigurationError(
            "KAFKA_CONFIG_INVALID",
            saw="The settings of a service name no SCRAM mechanism.",
            why="kafka-access creates the user with a SCRAM password.",
            fix="Add sasl.mechanism=SCRAM-SHA-512 to the file.",
        )
    return UserScramCredentialUpsertion(
        config["sasl.username"],
        ScramCredentialInfo(mechanism, _ITERATIONS),
        config["sasl.password"].encode(),
    )


def _rights(
    service: KafkaService,
    user: str,
    topics: Sequence[str],
    outbox_topics: Sequence[str],
) -> Iterable[AclBinding]:
    """List what a service does in Kafka, as rights of its user."""
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    transactions = ResourceType.TRANSACTIONAL_ID
    write, read = AclOperation.WRITE, AclOperation.READ
    describe, create = AclOperation.DESCRIBE, AclOperation.CREATE
    allow = _Granted(f"User:{user}")
    match service:
        case KafkaService.INGEST:
            yield from allow.each(topic, topics, write, describe)
        case KafkaService.PRODUCER:
            yield from allow.each(topic, topics, write, describe)
            yield from allow.all_of(transactions, f"{user}-", write, describe)
        case KafkaService.DRIVER:
            yield from allow.each(topic, topics, read, describe)
            yield from allow.all_of(group, _DRIVER_GROUPS, read)
        case KafkaService.RELAY:
            # The relay reads the source's configuration: the topic of dead letters
            # must accept what the source accepts, and headers.
            configs = AclOperation.DESCRIBE_CONFIGS
            yield from allow.each(topic, topics, read, describe, configs)
            sent_to = [*(f"{name}.dlq" for name in topics), *outbox_topics]
            yield from allow.each(topic, sent_to, create, write, describe)
            yield from allow.all_of(group, _MIRROR_GROUPS, read)
            yield from allow.all_of(transactions, _RELAY_TRANSACTIONS, write, describe)
        case KafkaService.VIEWER:
            configs = AclOperation.DESCRIBE_CONFIGS
            seen = [*topics, *(f"{name}.dlq" for name in topics), *outbox_topics]
            yield from allow.each(topic, seen, read, describe, configs)
            yield from allow.all_of(group, _DRIVER_GROUPS, describe)
            yield from allow.all_of(group, _MIRROR_GROUPS, describe)
            yield from allow.each(ResourceType.BROKER, [_CLUSTER], describe)
        case KafkaService.ALERTS:
            # The service reads the first unread record to find its age.
            configs = AclOperation.DESCRIBE_CONFIGS
            yield from allow.each(topic, topics, read, describe, configs)


@dataclass(frozen=True, slots=True)
class _Granted:
    """Makes the rights of one user."""

    principal: str

    def each(
        self, kind: ResourceType, names: Iterable[str], *operations: AclOperation
    ) -> Iterable[AclBinding]:
        """Grant the operations on the resources with exactly these names."""
        for name in names:
            yield from self._make(kind, name, ResourcePatternType.LITERAL, operations)

    def all_of(
        self, kind: ResourceType, prefix: str, *operations: AclOperation
    ) -> Iterable[AclBinding]:
        """Grant the operations on all resources whose names begin with ``prefix``."""
        yield from self._make(kind, prefix, ResourcePatternType.PREFIXED, operations)

    def _make(
        self,
        kind: ResourceType,
        name: str,
        pattern: ResourcePatternType,
        operations: Iterable[AclOperation],
    ) -> Iterable[AclBinding]:
        for operation in operations:
            yield AclBinding(
                *(kind, name, pattern, self.principal, "*", operation),
                AclPermissionType.ALLOW,
            )
