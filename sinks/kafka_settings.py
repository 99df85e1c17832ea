"""How our processes connect to Kafka: one properties file for both of its clients.

librdkafka and Kafka's Java client name and combine the same settings differently. The
operator writes one file, with librdkafka's names, and both clients are configured from
it::

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=publisher
    sasl.password=...
    ssl.ca.location=/run/secrets/kafka_ca.pem

Instead of a password, a client may get tokens of OAuth 2 by OpenID Connect, with
``sasl.mechanism=OAUTHBEARER``, or show a certificate (mutual TLS)::

    sasl.oauthbearer.client.id=publisher
    sasl.oauthbearer.client.secret=...
    sasl.oauthbearer.token.endpoint.url=https://login.example.com/token
    ssl.certificate.location=/run/secrets/publisher.pem
    ssl.key.location=/run/secrets/publisher.key

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
_CLIENT_ID = "sasl.oauthbearer.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.secret"  # noqa: S105 - as above
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - as above
_SCOPE = "sasl.oauthbearer.scope"
_EXTENSIONS = "sasl.oauthbearer.extensions"
_CA = "ssl.ca.location"
_CERTIFICATE = "ssl.certificate.location"
_KEY = "ssl.key.location"
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - as above

#: One string, because a string of one word in capitals is taken for an error code.
_PROTOCOLS = "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
_OAUTH = "OAUTHBEARER"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    _OAUTH: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
#: What Java calls what a login module is given; the file has the same under our names.
_JAAS = {
    _USERNAME: "username",
    _PASSWORD: "password",
    _CLIENT_ID: "clientId",
    _CLIENT_SECRET: "clientSecret",
    _SCOPE: "scope",
}
_BY_PASSWORD = (_USERNAME, _PASSWORD)
_BY_TOKEN = (_CLIENT_ID, _CLIENT_SECRET, _TOKEN_URL)
_TLS = (_CA, _CERTIFICATE, _KEY, _KEY_PASSWORD)
_KEYS = (
    *(_PROTOCOL, _MECHANISM, *_BY_PASSWORD, *_BY_TOKEN, _SCOPE, _EXTENSIONS),
    *_TLS,
)
_PATHS = (_CA, _CERTIFICATE, _KEY)
#: How a private key begins that Java reads; OpenSSL also writes others.
_PKCS8 = re.compile(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----")

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
    config = _read_config(environment)[1]
    if config.get(_MECHANISM) == _OAUTH:
        config["sasl.oauthbearer.method"] = "oidc"
    return {"bootstrap.servers": bootstrap, **config}


def spark_options(
    bootstrap: str, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the same as options of Spark's Kafka source; they hold no secret.

    The file, and those that it names, must be at the same paths on every executor.

    Raises:
        ConfigurationError: As ``client_config`` does; also for a private key that Java
            does not read.
    """
    path, config = _read_config(environment)
    options = {"bootstrap.servers": bootstrap}
    if _PROTOCOL in config:
        options[_PROTOCOL] = config[_PROTOCOL]
    if _CA in config:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = config[_CA]
    if _CERTIFICATE in config:
        options |= _certificate_options(path, config)
    if _MECHANISM in config:
        options[_MECHANISM] = config[_MECHANISM]
        options["sasl.jaas.config"] = _jaas_config(path, config)
    if config.get(_MECHANISM) == _OAUTH:
        options[_TOKEN_URL] = config[_TOKEN_URL]
        options["sasl.login.callback.handler.class"] = (
            "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler"
        )
    if "${" in str(options):
        options["config.providers"] = "file,directory"
        for name in ("File", "Directory"):
            options[f"config.providers.{name.lower()}.class"] = (
                f"org.apache.kafka.common.config.provider.{name}ConfigProvider"
            )
    return {f"kafka.{name}": value for name, value in options.items()}


def _jaas_config(path: Path | None, config: Mapping[str, str]) -> str:
    given = [
        f'{name}="${{file:{path}:{key}}}"'
        for key, name in _JAAS.items()
        if key in config
    ]
    given += [
        f'extension_{name}="{value}"'
        for name, value in _extensions(config.get(_EXTENSIONS, ""))
    ]
    return f"{_LOGIN_MODULES[config[_MECHANISM]]} required {' '.join(given)};"


def _extensions(text: str) -> list[tuple[str, str]]:
    """Split ``name=value,name=value``."""
    pairs = [one.partition("=") for one in text.split(",") if one]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _certificate_options(
    path: Path | None, config: Mapping[str, str]
) -> dict[str, str]:
    key, certificate = Path(config[_KEY]), Path(config[_CERTIFICATE])
    try:
        is_readable = _PKCS8.search(key.read_text("ascii")) is not None
    except (OSError, UnicodeDecodeError):
        is_readable = False
    if not is_readable:
        raise _invalid(
            f"{path}: {key} is no private key in PKCS #8, which begins with BEGIN "
            "PRIVATE KEY (openssl pkcs8 -topk8 makes one)"
        )
    options = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"${{directory:{key.parent}:{key.name}}}",
        "ssl.keystore.certificate.chain": (
            f"${{directory:{certificate.parent}:{certificate.name}}}"
        ),
    }
    if _KEY_PASSWORD in config:
        options[_KEY_PASSWORD] = f"${{file:{path}:{_KEY_PASSWORD}}}"
    return options


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
    _check_login(path, protocol, config)
    for key in _TLS:
        if key in config and not protocol.endswith("SSL"):
            raise _invalid(f"{path}: {protocol} does not use {key}")
    if (_CERTIFICATE in config) != (_KEY in config) or (
        _KEY_PASSWORD in config and _KEY not in config
    ):
        raise _invalid(f"{path}: {_CERTIFICATE} and {_KEY} belong together")
    for text in (str(path), *(config.get(key, "") for key in _PATHS)):
        if _UNSAFE_IN_PATH.search(text):
            paths = f"{', '.join(_PATHS)}"
            raise _invalid(f"{path}: its path, or one of {paths}, has one of : {{ }}")


def _check_login(path: Path, protocol: str, config: Mapping[str, str]) -> None:
    needed, possible = set[str](), set[str]()
    if "SASL" in protocol:
        by_token = config.get(_MECHANISM) == _OAUTH
        needed = {_MECHANISM, *(_BY_TOKEN if by_token else _BY_PASSWORD)}
        possible = {_SCOPE, _EXTENSIONS} if by_token else set()
    every = {_MECHANISM, *_BY_PASSWORD, *_BY_TOKEN, _SCOPE, _EXTENSIONS}
    given = every & config.keys()
    if missing := needed - given:
        raise _invalid(f"{path}: {protocol} needs {', '.join(sorted(missing))}")
    if odd := given - needed - possible:
        used_by = f"{protocol} with {config[_MECHANISM]}" if needed else protocol
        raise _invalid(f"{path}: {used_by} does not use {', '.join(sorted(odd))}")
    if any(
        not name or not value
        for name, value in _extensions(config.get(_EXTENSIONS, ""))
    ):
        raise _invalid(f"{path}: {_EXTENSIONS} is not NAME=VALUE,NAME=VALUE")


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
