"""What each answer of a registry means: a fake gives those that no real one would."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema
from tallyweir.sinks.registry_client import (
    CA_VARIABLE,
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
    RegistryClient,
    RegistrySettings,
)
from tallyweir.sinks.testing.certificates import make_certificates, openssl
from tallyweir.sinks.testing.fake_registry import (
    FakeRegistry,
    fake_registry,
)

_TEXT = '{"type":"record","name":"R","fields":[]}'


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry without schemas."""
    with fake_registry() as fake:
        yield fake


def _client(registry: FakeRegistry, **more: str) -> RegistryClient:
    settings = {URL_VARIABLE: registry.url, **more}
    return RegistryClient(RegistrySettings.from_environment(settings))


def test_a_schema_comes_with_all_that_it_refers_to(registry: FakeRegistry) -> None:
    """What others refer to comes first, and once; a circle ends."""

    def refers(*subjects: str) -> list[dict[str, Any]]:
        return [{"name": f"n.{one}", "subject": one, "version": 1} for one in subjects]

    def of(subject: str, *subjects: str) -> dict[str, Any]:
        found = {"subject": subject, "version": 1, "id": 9, "schema": f'"{subject}"'}
        return {**found, "references": refers(*subjects)}

    registry.answers = {
        "/schemas/ids/5": (200, {"schema": _TEXT, "references": refers("a", "b")}),
        "/subjects/a/versions/1": (200, of("a", "b")),
        "/subjects/b/versions/1": (200, of("b", "a")),
        "/subjects/a/versions/latest": (
            200,
            {"subject": "a", "version": 4, "id": 5, "schema": _TEXT},
        ),
    }
    with _client(registry) as client:
        expected = RegisteredSchema(
            schema_id=5,
            kind="AVRO",
            text=_TEXT,
            references=(("n.b", '"b"'), ("n.a", '"a"')),
        )
        assert expected == client.schema(5)
        assert (4, replace(expected, references=())) == client.latest("a")
        assert client.schema(6) is None
        with pytest.raises(ConfigurationError, match="SUBJECT_MISSING"):
            client.latest("nothing")


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"error_code": 50001}),
        (503, "busy"),
        (429, {"error_code": 42901}),
        (404, {"error_code": 404}),
        (404, "<html>"),
        (404, []),
        (200, "<html>"),
        (200, []),
        (200, {}),
        (200, {"schema": None}),
        (200, ""),
        (302, ""),
    ],
)
def test_an_answer_that_does_not_say_says_nothing(
    registry: FakeRegistry, answer: tuple[int, Any]
) -> None:
    """No record dies for it, and each is asked once: the driver waits by itself."""
    registry.answers = {"/schemas/ids/5": answer}
    with (
        _client(registry) as client,
        pytest.raises(RetryableError, match="REGISTRY_UNAVAILABLE"),
    ):
        client.schema(5)
    assert ["/schemas/ids/5"] == registry.asked


def test_a_registry_that_is_not_there_says_nothing() -> None:
    """Neither does a host without a name."""
    for url in ("http://127.0.0.1:1", "https://127.0.0.1:1", "http://nowhere.invalid"):
        settings = RegistrySettings.from_environment({URL_VARIABLE: url})
        with (
            RegistryClient(settings) as client,
            pytest.raises(RetryableError, match="REGISTRY_UNAVAILABLE"),
        ):
            client.schema(5)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_for_the_operator(
    registry: FakeRegistry, status: int, tmp_path: Path
) -> None:
    """The secret comes from a file, and no error shows it."""
    registry.answers = {"/schemas/ids/5": (status, {"error_code": status * 100 + 1})}
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    login = {USER_VARIABLE: "me", f"{PASSWORD_VARIABLE}_FILE": str(secret)}
    with (
        _client(registry, **login) as client,
        pytest.raises(ConfigurationError, match="REGISTRY_REFUSED") as caught,
    ):
        client.schema(5)
    assert 78 == caught.value.exit_code
    assert "hidden" not in str(caught.value)
    assert ["Basic bWU6aGlkZGVu"] == registry.logins


def test_a_token_is_sent_as_it_is(registry: FakeRegistry) -> None:
    """Not with a user's login."""
    with _client(registry, **{TOKEN_VARIABLE: "t0k"}) as client:
        assert client.schema(5) is None
    assert ["Bearer t0k"] == registry.logins


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, "SETTING_MISSING"),
        ({URL_VARIABLE: "hidden:8081"}, "REGISTRY_SETTING"),
        ({URL_VARIABLE: "ftp://hidden"}, "REGISTRY_SETTING"),
        ({URL_VARIABLE: "http://[hidden"}, "REGISTRY_SETTING"),
        ({URL_VARIABLE: "http://me:hidden@host"}, "REGISTRY_SETTING"),
        ({URL_VARIABLE: "http://a,http://me:hidden@host"}, "REGISTRY_SETTING"),
        ({USER_VARIABLE: "hidden"}, "REGISTRY_SETTING"),
        ({PASSWORD_VARIABLE: "hidden"}, "REGISTRY_SETTING"),
        (
            {USER_VARIABLE: "me", PASSWORD_VARIABLE: "hidden", TOKEN_VARIABLE: "t"},
            "REGISTRY_SETTING",
        ),
        ({CERTIFICATE_VARIABLE: "/hidden.pem"}, "REGISTRY_SETTING"),
    ],
)
def test_settings_that_cannot_be_used_are_told_without_their_values(
    settings: dict[str, str], code: str
) -> None:
    """A part of them may be secret."""
    url = {} if code == "SETTING_MISSING" else {URL_VARIABLE: "http://127.0.0.1:1"}
    with pytest.raises(ConfigurationError, match=code) as caught:
        RegistryClient(RegistrySettings.from_environment({**url, **settings}))
    told = " ".join((str(caught.value), repr(caught.value.__cause__)))
    assert "hidden" not in told
    assert "hidden" not in json.dumps(repr(RegistrySettings(config=settings)))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with keys and certificates of an authority of its own."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    return directory


@pytest.fixture
def secured(certificates: Path) -> Iterator[FakeRegistry]:
    """A registry that lets in whoever has a certificate of the authority."""
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem"
    )
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with fake_registry(context) as fake:
        fake.answers = {"/schemas/ids/5": (200, {"schema": _TEXT})}
        yield fake


def test_a_certificate_and_a_token_let_in_and_are_in_no_log(
    secured: FakeRegistry, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even in those of the libraries, at their lowest level."""
    caplog.set_level(logging.DEBUG)
    settings = {
        CA_VARIABLE: str(certificates / "ca.pem"),
        CERTIFICATE_VARIABLE: str(certificates / "client.crt"),
        KEY_VARIABLE: str(certificates / "client.key"),
    }
    with _client(secured, **settings, **{TOKEN_VARIABLE: "hidden-token"}) as client:
        assert client.schema(5) is not None
        secured.answers["/schemas/ids/6"] = (401, "no hidden-token")
        with pytest.raises(ConfigurationError, match="REGISTRY_REFUSED") as caught:
            client.schema(6)
    assert ["Bearer hidden-token"] * 2 == secured.logins
    assert "hidden" not in f"{caught.value}{caught.value.__cause__!r}{caplog.text}"
    login = {USER_VARIABLE: "me", PASSWORD_VARIABLE: "hidden"}
    with _client(secured, **settings, **login) as client:
        assert client.schema(7) is None
    assert "Basic bWU6aGlkZGVu" == secured.logins[-1]
    assert "hidden" not in caplog.text
    assert "bWU6aGlkZGVu" not in caplog.text


@pytest.mark.parametrize("variables", [(), (CA_VARIABLE,)])
def test_a_failed_handshake_is_told_as_one(
    secured: FakeRegistry, certificates: Path, variables: tuple[str, ...]
) -> None:
    """The authority is not known, or there is no certificate for the registry."""
    settings = dict.fromkeys(variables, str(certificates / "ca.pem"))
    with (
        _client(secured, **settings) as client,
        pytest.raises(RetryableError, match=r"REGISTRY_UNAVAILABLE.*SSL"),
    ):
        client.schema(5)
    assert not secured.logins


def test_a_key_with_a_password_is_refused_without_a_question(
    registry: FakeRegistry, certificates: Path
) -> None:
    """A terminal would be asked for it, and the driver would hang."""
    openssl(
        certificates,
        *("rsa", "-in", "client.key", "-aes128", "-passout", "pass:hidden"),
        *("-out", "locked.key"),
    )
    settings = {
        CERTIFICATE_VARIABLE: str(certificates / "client.crt"),
        KEY_VARIABLE: str(certificates / "locked.key"),
    }
    with pytest.raises(ConfigurationError, match="REGISTRY_SETTING"):
        _client(registry, **settings)
