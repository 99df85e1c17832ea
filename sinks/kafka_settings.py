"""How our processes connect to Kafka: one properties file for both of its clients.

librdkafka and Kafka's Java client name and combine the same settings differently. The
operator writes one file, with librdkafka's names, and both clients are configured from
it::

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=publisher
    sasl.password=...
    ssl.ca.location=/run/secrets/kafka_ca.pem

``TALLYWEIR_KAFKA_CONFIG`` names it, for drivers and executors alike. Spark shows and
logs a source's options, so the Java client gets references into the file and looks the
secrets up by itself.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from tallyweir.sinks.protocol.errors import ConfigurationError

KAFKA_CONFIG_VARIABLE = "TALLYWEIR_KAFKA_CONFIG"

_PROTOCOL = "security.protocol"
_MECHANISM = "sasl.mechanism"
_USERNAME = "sasl.username"
_PASSWORD = "sasl.password"  # noqa: S105 - the name of a setting
_CA = "ssl.ca.location"
_KEYS = (_PROTOCOL, _MECHANISM, _USERNAME, _PASSWORD, _CA)

#: One string, because a string of one word in capitals is taken for an error code.
_PROTOCOLS = "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

#: Characters that would end a quoted text of a JAAS configuration, or begin an escape
#: in it or in a Java properties file.
_UNSAFE = re.compile(r'["\\\x00-\x1f\x7f]')
#: Characters that Java's reference to a value in a file cannot hold.
_UNSAFE_IN_PATH = re.compile(r"[:{}]")


def client_config(
    bootstrap: str, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the settings that librdkafka needs to connect; may hold a password.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        environment: Environment of the process.

    Raises:
        ConfigurationError: ``KAFKA_CONFIG_INVALID``. The error never shows a value that
            may be secret.
    """
    return {"bootstrap.servers": bootstrap, **_read_config(environment)[1]}


def spark_options(
    bootstrap: str, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the same as options of Spark's Kafka source; they hold no secret.

    The file must be at the same path on every executor.

    Raises:
        ConfigurationError: As ``client_config`` does.
    """
    path, config = _read_config(environment)
    options = {"bootstrap.servers": bootstrap}
    if _PROTOCOL in config:
        options[_PROTOCOL] = config[_PROTOCOL]
    if _CA in config:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = config[_CA]
    if _MECHANISM in config:
        module = _LOGIN_MODULES[config[_MECHANISM]]
        options[_MECHANISM] = config[_MECHANISM]
        options["config.providers"] = "file"
        options["config.providers.file.class"] = (
            "org.apache.kafka.common.config.provider.FileConfigProvider"
        )
        options["sasl.jaas.config"] = (
            f'{module} required username="${{file:{path}:{_USERNAME}}}" '
            f'password="${{file:{path}:{_PASSWORD}}}";'
        )
    return {f"kafka.{name}": value for name, value in options.items()}


def _read_config(environment: Mapping[str, str]) -> tuple[Path | None, dict[str, str]]:
    given = environment.get(KAFKA_CONFIG_VARIABLE)
    if not given:
        return None, {}
    path = Path(given).absolute()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise _invalid(f"{path} cannot be read ({reason})") from None
    config: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, separator, value = line.partition("=")
        key, value = key.strip(), value.lstrip()
        where = f"{path} line {number}"
        if not separator or key not in _KEYS:
            raise _invalid(f"{where} {_unknown(key if separator else '')}")
        if key in config:
            raise _invalid(f"{where} sets {key} a second time")
        if not value or value != value.rstrip() or _UNSAFE.search(value):
            raise _invalid(
                f"{where}: the value of {key} is empty, ends in a blank, or has a "
                "quotation mark, a backslash or a control character"
            )
        config[key] = value
    _check(path, config)
    return path, config


def _check(path: Path, config: Mapping[str, str]) -> None:
    protocol = config.get(_PROTOCOL, "PLAINTEXT")
    if protocol not in _PROTOCOLS.split(", "):
        raise _invalid(f"{path}: {_PROTOCOL} is not one of {_PROTOCOLS}")
    if _MECHANISM in config and config[_MECHANISM] not in _LOGIN_MODULES:
        raise _invalid(
            f"{path}: {_MECHANISM} is not one of {', '.join(_LOGIN_MODULES)}"
        )
    sasl = {key for key in (_MECHANISM, _USERNAME, _PASSWORD) if key in config}
    needed = {_MECHANISM, _USERNAME, _PASSWORD} if "SASL" in protocol else set()
    if sasl != needed:
        odd = ", ".join(sorted(sasl ^ needed))
        verb = "needs" if needed else "does not use"
        raise _invalid(f"{path}: {protocol} {verb} {odd}")
    if _CA in config and not protocol.endswith("SSL"):
        raise _invalid(f"{path}: {protocol} does not use {_CA}")
    if _UNSAFE_IN_PATH.search(f"{path}{config.get(_CA, '')}"):
        raise _invalid(f"{path}: its path, or that of {_CA}, has one of : {{ }}")


def _unknown(key: str) -> str:
    if not key:
        return "is not NAME=VALUE"
    # The line may be the second half of a broken password, so it must not be shown.
    nearest = difflib.get_close_matches(key, _KEYS, n=1)
    return f"has an unknown name{f' like {nearest[0]}' if nearest else ''}"


def _invalid(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "KAFKA_CONFIG_INVALID",
        saw=f"{saw}.",
        why=f"The file that {KAFKA_CONFIG_VARIABLE} names holds the settings for "
        "connecting to Kafka.",
        fix=f"Write lines NAME=VALUE with the names {', '.join(_KEYS)}.",
    )
