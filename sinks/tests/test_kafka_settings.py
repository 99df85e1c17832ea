"""One properties file tells both Kafka clients how to get in, and shows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.sinks.kafka_settings import (
    KAFKA_CONFIG_VARIABLE,
    client_config,
    spark_options,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

_SECRET = "hush-hush"
_WHOLE = f"""
# How the publisher gets in.
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.username=publisher
sasl.password={_SECRET}
ssl.ca.location=/run/secrets/ca.pem
"""
_BY_TOKEN = f"""
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.client.id=publisher
sasl.oauthbearer.client.secret={_SECRET}
sasl.oauthbearer.token.endpoint.url=https://login.example.com/token
"""


def _environment(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "kafka.properties"
    path.write_text(text)
    return {KAFKA_CONFIG_VARIABLE: str(path)}


def test_without_a_file_only_the_brokers_are_named() -> None:
    """An open broker, as the embedded one, needs nothing else."""
    assert client_config("k:9092", {}) == {"bootstrap.servers": "k:9092"}
    assert spark_options("k:9092", {}) == {"kafka.bootstrap.servers": "k:9092"}


def test_librdkafka_is_given_the_settings_as_they_are_written(tmp_path: Path) -> None:
    """The file is in its words."""
    assert client_config("k:9092", _environment(tmp_path, _WHOLE)) == {
        "bootstrap.servers": "k:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "publisher",
        "sasl.password": _SECRET,
        "ssl.ca.location": "/run/secrets/ca.pem",
    }


def test_spark_is_given_references_instead_of_secrets(tmp_path: Path) -> None:
    """A source's options are shown on Spark's page and in its logs."""
    options = spark_options("k:9092", _environment(tmp_path, _WHOLE))
    path = tmp_path / "kafka.properties"
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="${{file:{path}:sasl.username}}" '
        f'password="${{file:{path}:sasl.password}}";'
    )
    assert options["kafka.ssl.truststore.location"] == "/run/secrets/ca.pem"
    assert _SECRET not in str(options)


def test_both_clients_fetch_their_tokens_by_themselves(tmp_path: Path) -> None:
    """Java's is told the class that does it, librdkafka the method."""
    extended = f"{_BY_TOKEN}sasl.oauthbearer.extensions=logicalCluster=l, pool=p\n"
    environment = _environment(tmp_path, extended)
    assert client_config("k:9092", environment)["sasl.oauthbearer.method"] == "oidc"
    options = spark_options("k:9092", environment)
    where = f"${{file:{tmp_path / 'kafka.properties'}:sasl.oauthbearer.client"
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="{where}.id}}" clientSecret="{where}.secret}}" '
        'extension_logicalCluster="l" extension_pool="p";'
    )
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"].startswith("https://")
    assert _SECRET not in str(options)


def test_java_reads_the_private_key_where_it_lies(tmp_path: Path) -> None:
    """Its text is no option; a key in a form that Java does not read is refused."""
    key = tmp_path / "client.key"
    environment = _environment(
        tmp_path,
        f"security.protocol=SSL\nssl.certificate.location={tmp_path}/client.crt\n"
        f"ssl.key.location={key}\nssl.key.password={_SECRET}\n",
    )
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nhush\n")
    options = spark_options("k:9092", environment)
    assert options["kafka.ssl.keystore.key"] == f"${{directory:{tmp_path}:client.key}}"
    assert options["kafka.config.providers"] == "file,directory"
    assert "hush" not in str(options)
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nhush\n")
    with pytest.raises(ConfigurationError, match=r"client\.key is no private key"):
        spark_options("k:9092", environment)


@pytest.mark.parametrize(
    ("text", "saw"),
    [
        ("hush-hush\n", "line 1 is not NAME=VALUE"),
        ("sasl.pasword=hush-hush", "line 1 has an unknown name like sasl.password"),
        ("hush=hush-hush", "line 1 has an unknown name"),
        ("security.protocol=SSL\nsecurity.protocol=SSL", "a second time"),
        ("security.protocol=TLS", "not one of PLAINTEXT"),
        ("security.protocol=SASL_SSL", "needs sasl.mechanism"),
        ("sasl.username=u", "PLAINTEXT does not use sasl.username"),
        ("ssl.ca.location=/ca.pem", "PLAINTEXT does not use ssl.ca.location"),
        (_WHOLE.replace("SCRAM-SHA-512", "GSSAPI"), "not one of PLAIN"),
        (_WHOLE.replace(_SECRET, 'hush"-hush'), "quotation mark"),
        (_WHOLE.replace(_SECRET, "hush\\-hush"), "backslash"),
        (_WHOLE.replace(_SECRET, "hush-hush "), "ends in a blank"),
        (_WHOLE.replace("/run/secrets/ca.pem", "/run/a:b/ca.pem"), "has one of"),
        (_WHOLE.replace("SCRAM-SHA-512", "OAUTHBEARER"), "needs sasl.oauthbearer."),
        (f"{_BY_TOKEN}sasl.password=hush-hush", "OAUTHBEARER does not use sasl.pass"),
        (f"{_WHOLE}sasl.oauthbearer.scope=kafka", "SCRAM-SHA-512 does not use sasl.o"),
        (f"{_BY_TOKEN}sasl.oauthbearer.extensions=a", "extensions is not NAME=VALUE"),
        ("security.protocol=SSL\nssl.key.location=/k", "belong together"),
        ("security.protocol=SSL\nssl.key.password=hush", "belong together"),
        ("ssl.certificate.location=/c", "PLAINTEXT does not use ssl.certificate"),
    ],
)
def test_a_malformed_file_is_refused_and_none_of_its_values_shown(
    tmp_path: Path, text: str, saw: str
) -> None:
    """Whatever is wrong, what was read may be a password."""
    environment = _environment(tmp_path, text)
    for read in (client_config, spark_options):
        with pytest.raises(ConfigurationError) as refused:
            read("k:9092", environment)
        assert saw in refused.value.saw
        assert "hush" not in f"{refused.value}{refused.value.fix}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Going on without it would try to get in with no password at all."""
    path = tmp_path / "missing.properties"
    with pytest.raises(ConfigurationError, match=r"missing\.properties"):
        client_config("k:9092", {KAFKA_CONFIG_VARIABLE: str(path)})
