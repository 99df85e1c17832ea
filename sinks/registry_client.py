"""Ask a schema registry by Confluent's REST API, and tell its silence from its answers.

Only a definite answer that there is no such schema says something about a record. A
registry that is away, overloaded, or that answers with anything else, says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)

from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema
from tallyweir.sinks.settings import read_setting

URL_VARIABLE = "TALLYWEIR_REGISTRY_URL"
USER_VARIABLE = "TALLYWEIR_REGISTRY_USER"
PASSWORD_VARIABLE = "TALLYWEIR_REGISTRY_PASSWORD"  # noqa: S105 - the name of a setting
TOKEN_VARIABLE = "TALLYWEIR_REGISTRY_TOKEN"  # noqa: S105 - the name of a setting
CLUSTER_VARIABLE = "TALLYWEIR_REGISTRY_CLUSTER"
CA_VARIABLE = "TALLYWEIR_REGISTRY_CA"
CERTIFICATE_VARIABLE = "TALLYWEIR_REGISTRY_CERTIFICATE"
KEY_VARIABLE = "TALLYWEIR_REGISTRY_KEY"

#: The client's word for a token that it gets as it is; in two parts, because a string
#: of one word in capitals is taken for an error code.
_STATIC = "STATIC_" + "TOKEN"
#: Seconds that a registry may leave us without a byte.
_TIMEOUT_S = 5
#: Most schemas that one refers to; more are a mistake, or go round in a circle.
_REFERENCES_MAX = 200
#: Its own codes of a subject, a version and a schema that do not exist. Any other 404
#: may be of a proxy, or of a URL that lacks its path.
_NOT_THERE = frozenset({40401, 40402, 40403})
_T = TypeVar("_T")

_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How to reach a registry; secrets are hidden in ``repr``.

    Attributes:
        config: The settings of the client, by its own names.
    """

    config: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RegistrySettings:
        """Read the settings; each may be in a file, as ``read_setting`` says.

        Raises:
            ConfigurationError: ``SETTING_MISSING``, ``REGISTRY_SETTING``, or as
                ``read_setting`` does. No error shows a value that may be secret.
        """
        url = read_setting(environment, URL_VARIABLE)
        if not url:
            raise ConfigurationError(
                "SETTING_MISSING",
                saw=f"{URL_VARIABLE} is not set.",
                why="The pipeline's contract is in a schema registry.",
                fix="Set it to the registry's address, such as http://registry:8081.",
            )
        _check_url(url)
        given = {
            name: value
            for name, variable in (
                ("ssl.ca.location", CA_VARIABLE),
                ("ssl.certificate.location", CERTIFICATE_VARIABLE),
                ("ssl.key.location", KEY_VARIABLE),
            )
            if (value := read_setting(environment, variable))
        }
        return cls(config={"url": url, **given, **_login(environment)})


def _login(environment: Mapping[str, str]) -> dict[str, str]:
    user = read_setting(environment, USER_VARIABLE)
    password = read_setting(environment, PASSWORD_VARIABLE)
    token = read_setting(environment, TOKEN_VARIABLE)
    if (user is None) != (password is None) or (user is not None and token is not None):
        raise _wrong(
            f"{USER_VARIABLE} and {PASSWORD_VARIABLE} belong together, and not with "
            f"{TOKEN_VARIABLE}."
        )
    if token is not None:
        return {
            "bearer.auth.credentials.source": _STATIC,
            "bearer.auth.token": token,
            "bearer.auth.logical.cluster": read_setting(environment, CLUSTER_VARIABLE)
            or "",
        }
    return {} if user is None else {"basic.auth.user.info": f"{user}:{password}"}


def _check_url(url: str) -> None:
    for one in url.split(","):
        try:
            parts = urlsplit(one.strip())
        except ValueError:
            raise _wrong(f"{URL_VARIABLE} is not a URL.") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise _wrong(f"{URL_VARIABLE} is not the URL of an http or https server.")
        if parts.username is not None or parts.password is not None:
            raise _wrong(f"{URL_VARIABLE} holds a user or a password.")


def _wrong(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "REGISTRY_SETTING",
        saw=saw,
        why="The driver cannot ask the schema registry.",
        fix=f"Set {URL_VARIABLE} to its address, and a login by {USER_VARIABLE} and "
        f"{PASSWORD_VARIABLE}_FILE, or by {TOKEN_VARIABLE}_FILE.",
    )


def open_client() -> RegistryClient:
    """Return a client by the settings of this process.

    Raises:
        ConfigurationError: As ``RegistrySettings`` and ``RegistryClient`` do.
    """
    return RegistryClient(RegistrySettings.from_environment(os.environ))


class RegistryClient:
    """Asks a schema registry; use it as a context manager, for some questions.

    A question waits for some seconds. The client's own retries are off, because the
    driver waits by itself.

    Raises:
        ConfigurationError: ``REGISTRY_SETTING``: a file of certificates cannot be used.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        has_certificate = "ssl.certificate.location" in settings.config
        try:
            self._client = SchemaRegistryClient(
                {
                    **settings.config,
                    # Without it, OpenSSL would ask the terminal for the password of a
                    # key that has one.
                    **({"ssl.key.password": ""} if has_certificate else {}),
                    "max.retries": 0,
                    "timeout": _TIMEOUT_S,
                }
            )
        except (OSError, ValueError):
            # The text of the error may quote a setting.
            raise _wrong("A file of certificates or keys cannot be used.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id; None if the registry says that there is none.

        Raises:
            RetryableError: ``REGISTRY_UNAVAILABLE``: it did not say.
            ConfigurationError: ``REGISTRY_REFUSED``.
        """
        with self._asking(f"the schema {schema_id}"):
            try:
                return self._whole(schema_id, self._client.get_schema(schema_id))
            except SchemaRegistryError as error:
                if _is_not_there(error):
                    return None
                raise

    def latest(self, subject: str) -> tuple[int, RegisteredSchema]:
        """Return the number of a subject's newest version, and its schema.

        Raises:
            ConfigurationError: ``SUBJECT_MISSING``, or as ``schema`` does.
            RetryableError: As ``schema`` does.
        """
        with self._asking(f"the subject {subject}"):
            try:
                found = self._client.get_latest_version(subject)
            except SchemaRegistryError as error:
                if _is_not_there(error):
                    raise _missing(subject) from None
                raise
            schema = self._whole(_there(found.schema_id), _there(found.schema))
            return _there(found.version), schema

    def _whole(self, schema_id: int, schema: Schema) -> RegisteredSchema:
        """Return a schema with all that it refers to."""
        gathered: dict[tuple[str, int], tuple[str, str]] = {}
        asked: set[tuple[str, int]] = set()

        def gather(references: list[SchemaReference] | None) -> None:
            for one in references or ():
                place = _there(one.subject), _there(one.version)
                if place in asked or len(asked) >= _REFERENCES_MAX:
                    continue
                asked.add(place)
                found = _there(self._client.get_version(*place, deleted=True).schema)
                gather(found.references)
                gathered[place] = _there(one.name), _there(found.schema_str)

        gather(schema.references)
        return RegisteredSchema(
            schema_id=schema_id,
            kind=schema.schema_type or "AVRO",
            text=_there(schema.schema_str),
            references=tuple(gathered.values()),
        )

    @contextmanager
    def _asking(self, wanted: str) -> Iterator[None]:
        try:
            yield
        except ConfigurationError:
            raise
        except SchemaRegistryError as error:
            if error.http_status_code in _REFUSED:
                raise ConfigurationError(
                    "REGISTRY_REFUSED",
                    saw="The schema registry refused the login "
                    f"(HTTP {error.http_status_code}) when asked for {wanted}.",
                    why="Events cannot be decoded without their schemas.",
                    fix=f"Correct {USER_VARIABLE} and {PASSWORD_VARIABLE}_FILE, or "
                    f"{TOKEN_VARIABLE}_FILE, and let that login read schemas and "
                    "subjects.",
                ) from None
            raise _unavailable(
                wanted, f"HTTP {error.http_status_code}, code {error.error_code}"
            ) from None
        except Exception as error:  # noqa: BLE001 - of any class
            # The client passes on the errors of its HTTP library, and takes answers
            # apart without looking. Their texts may quote what is secret.
            raise _unavailable(wanted, _classes(error)) from None


def _there(value: _T | None) -> _T:
    if value is None:
        raise ValueError("a part is missing")
    return value


def _is_not_there(error: SchemaRegistryError) -> bool:
    is_definite = error.error_code in _NOT_THERE
    return error.http_status_code == HTTPStatus.NOT_FOUND and is_definite


def _missing(subject: str) -> ConfigurationError:
    return ConfigurationError(
        "SUBJECT_MISSING",
        saw=f"The schema registry has no subject {subject!r:.200}.",
        why="The pipeline's columns, and the ids that producers write, are those of "
        "its versions.",
        fix="Register the schema, or name its subject: source: {subject: NAME}.",
    )


def _classes(error: BaseException) -> str:
    """Name the classes of an error and of its causes: a wrong certificate is one."""
    names = [type(error).__name__]
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
        if type(error).__name__ not in names:
            names.append(type(error).__name__)
    return ", ".join(names)


def _unavailable(wanted: str, saw: str) -> RetryableError:
    return RetryableError(
        "REGISTRY_UNAVAILABLE",
        saw=f"The schema registry did not answer when asked for {wanted} ({saw}).",
        why="Records that name a schema that is not kept yet cannot be decoded; they "
        "wait, and none of them becomes a dead letter for it.",
        fix=f"Start the registry, or correct {URL_VARIABLE}, which may lack a path "
        f"such as /apis/ccompat/v7, or {CA_VARIABLE} where an SSL error is named; the "
        "pipeline goes on by itself.",
    )
