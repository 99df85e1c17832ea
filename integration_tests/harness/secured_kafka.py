"""A broker that lets in whoever has a token or a certificate, and who gives them out.

Keys, certificates and signatures are OpenSSL's.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.sinks.testing.certificates import make_certificates, openssl

CLIENT_ID, CLIENT_SECRET = "publisher", "hush-hush"
_LIFETIME_S = 60
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\
TOKENS://127.0.0.1:{token_port},CERTIFICATES://localhost:{certificate_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},\
TOKENS://127.0.0.1:{token_port},CERTIFICATES://localhost:{certificate_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
TOKENS:SASL_PLAINTEXT,CERTIFICATES:SSL
inter.broker.listener.name=PLAINTEXT
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={package}.OAuthBearerLoginModule \
required;
listener.name.tokens.oauthbearer.sasl.server.callback.handler.class=\
{package}.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwks.endpoint.url={jwks}
sasl.oauthbearer.expected.audience=kafka
sasl.oauthbearer.expected.issuer=tests
listener.name.certificates.ssl.client.auth=required
listener.name.certificates.ssl.keystore.type=PEM
listener.name.certificates.ssl.keystore.location={server}
listener.name.certificates.ssl.truststore.type=PEM
listener.name.certificates.ssl.truststore.location={authority}
"""


class SecuredKafka(EmbeddedKafka):
    """The broker; it trusts the keys of a directory.

    Args:
        directory: The server's own.
        keys: Where ``make_keys`` has made them.
    """

    ports = ("port", "controller_port", "token_port", "certificate_port")

    def __init__(self, directory: Path, keys: Path) -> None:
        super().__init__(directory)
        self._keys = keys
        jwks = (keys / "jwks.json").as_uri()
        self.java_options = (
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}",
        )

    @property
    def takes_tokens(self) -> str:
        """Where a client needs a token."""
        return f"127.0.0.1:{self._read_ports()['token_port']}"

    @property
    def takes_certificates(self) -> str:
        """Where a client needs a certificate."""
        return f"localhost:{self._read_ports()['certificate_port']}"

    def _settings(self, data: Path, ports: dict[str, int]) -> str:
        return super()._settings(data, ports) + _LISTENERS.format(
            package=_OAUTHBEARER,
            jwks=(self._keys / "jwks.json").as_uri(),
            server=self._keys / "server.pem",
            authority=self._keys / "ca.pem",
            **ports,
        )


def make_keys(directory: Path) -> None:
    """Make an authority, certificates of a server and a client, and a token's key."""
    make_certificates(directory)
    key = (directory / "server.key").read_text()
    (directory / "server.pem").write_text(key + (directory / "server.crt").read_text())
    # The old form, which Java does not read.
    openssl(directory, "rsa", "-in", "client.key", "-traditional", "-out", "old.key")
    openssl(directory, "genrsa", "-out", "token.key", "2048")
    modulus = openssl(directory, "rsa", "-in", "token.key", "-noout", "-modulus")
    number = bytes.fromhex(modulus.decode().strip().removeprefix("Modulus="))
    jwk = {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256"}
    public = {**jwk, "n": _base64(number), "e": "AQAB"}
    (directory / "jwks.json").write_text(json.dumps({"keys": [public]}))


@contextmanager
def token_service(keys: Path) -> Iterator[str]:
    """Give out tokens to the one client that is known; gives the address."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            given = self.headers["Authorization"].removeprefix("Basic ")
            if b64decode(given).decode() != f"{CLIENT_ID}:{CLIENT_SECRET}":
                self.send_error(401)
                return
            body = json.dumps(
                {
                    "access_token": _token(keys),
                    "token_type": "Bearer",
                    "expires_in": _LIFETIME_S,
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _token(keys: Path) -> str:
    now = int(time.time())
    head = {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    claims = {
        "iss": "tests",
        "sub": CLIENT_ID,
        "aud": "kafka",
        "iat": now,
        "exp": now + _LIFETIME_S,
    }
    signed = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
    signature = openssl(keys, "dgst", "-sha256", "-sign", "token.key", given=signed)
    return f"{signed}.{_base64(signature)}"


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
