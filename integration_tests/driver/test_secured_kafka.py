"""A driver gets into a broker by a token of OAuth, and by a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import sent
from integration_tests.harness.secured_kafka import (
    CLIENT_ID,
    CLIENT_SECRET,
    SecuredKafka,
    make_keys,
    token_service,
)
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.kafka_settings import KAFKA_CONFIG_VARIABLE
from tallyweir.sinks.protocol.errors import TallyweirError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_BY_TOKEN = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.client.id={client}
sasl.oauthbearer.client.secret={secret}
sasl.oauthbearer.token.endpoint.url={url}
sasl.oauthbearer.scope=kafka
sasl.oauthbearer.extensions=logicalCluster=lkc-1
"""
_BY_CERTIFICATE = """
security.protocol=SSL
ssl.ca.location={keys}/ca.pem
ssl.certificate.location={keys}/client.crt
ssl.key.location={keys}/{key}
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, certificates, and the key of tokens."""
    directory = tmp_path_factory.mktemp("keys")
    make_keys(directory)
    return directory


@pytest.fixture(scope="module")
def broker(
    keys: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    """The broker."""
    server = SecuredKafka(tmp_path_factory.mktemp("kafka"), keys)
    server.start()
    try:
        yield server
    finally:
        server.delete_data()


@pytest.fixture(scope="module")
def token_url(keys: Path) -> Iterator[str]:
    """Where tokens are given out."""
    with token_service(keys) as url:
        yield url


@pytest.mark.parametrize("by", ["token", "certificate"])
def test_a_driver_reads_what_only_the_known_may_read(  # noqa: PLR0913, PLR0917
    tmp_path: Path,
    broker: SecuredKafka,
    keys: Path,
    token_url: str,
    home_dsn: str,
    by: str,
) -> None:
    """Both of its clients get in, from one file; no secret is in its log."""
    config = tmp_path / "kafka.properties"
    if by == "token":
        text = _BY_TOKEN.format(client=CLIENT_ID, secret=CLIENT_SECRET, url=token_url)
        bootstrap = broker.takes_tokens
    else:
        text = _BY_CERTIFICATE.format(keys=keys, key="client.key")
        bootstrap = broker.takes_certificates
    config.write_text(text)
    world = DriverWorld(tmp_path, broker.bootstrap, home_dsn)
    world.topic.send([sent(world.contract, event_id=f"r{n}") for n in range(20)])
    world.topic.bootstrap = bootstrap
    environment = {KAFKA_CONFIG_VARIABLE: str(config)}
    with world.driver(once=True, environment=environment) as driver:
        assert driver.wait() == 0
        said = str(driver.failure("said"))
    assert world.value("SELECT count(*) FROM readings") == 20
    kept = [path.read_bytes() for path in world.state.rglob("*") if path.is_file()]
    assert "batch published" in said
    assert kept
    assert not any(CLIENT_SECRET.encode() in text for text in kept)
    assert CLIENT_SECRET not in said


def test_who_is_not_known_does_not_get_in(
    tmp_path: Path,
    broker: SecuredKafka,
    keys: Path,
    token_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the tests above have shown something."""
    config = tmp_path / "kafka.properties"
    monkeypatch.setenv(KAFKA_CONFIG_VARIABLE, str(config))
    for text, bootstrap in (
        (
            _BY_TOKEN.format(client=CLIENT_ID, secret="wrong", url=token_url),
            broker.takes_tokens,
        ),
        (
            f"security.protocol=SSL\nssl.ca.location={keys}/ca.pem\n",
            broker.takes_certificates,
        ),
    ):
        config.write_text(text)
        with pytest.raises(TallyweirError, match="KAFKA_UNREACHABLE"):
            KafkaAdmin(bootstrap, "any", timeout_s=5.0).read_positions()
