"""Servers whose certificates have expired: nobody of ours talks to them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.containers.deployment import Deployment, running
from tallyweir.services.local.embedded.state_directory import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_SIGN_ANEW = """
set -euo pipefail
chmod u+w ./*
for server in kafka postgres; do
    openssl x509 -in "${server}_server.crt" -signkey "${server}_server.key" \
        -x509toreq -out request.csr
    openssl x509 -req -in request.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
        -extfile <(printf 'subjectAltName=DNS:%s' "$server") -days -1 \
        -out "${server}_server.crt"
    # The date is all that is wrong.
    openssl verify -no_check_time -CAfile ca.pem -verify_hostname "$server" \
        "${server}_server.crt"
done
cat kafka_server.key kafka_server.crt > kafka_server.pem
chmod 0444 ./*
"""

#: A broker that would speak to itself with an expired certificate does not even start.
_SPEAKS_TO_ITSELF_IN_CLEAR = """
listeners=CLIENT://:9092,CONTROLLER://127.0.0.1:9093,ITSELF://127.0.0.1:9094
advertised.listeners=CLIENT://kafka:9092,ITSELF://127.0.0.1:9094
listener.security.protocol.map=CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT,ITSELF:PLAINTEXT
inter.broker.listener.name=ITSELF
"""


@pytest.fixture(scope="module")
def expired(
    secrets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Kafka and Postgres with certificates of the right authority, until yesterday."""
    directory = tmp_path_factory.mktemp("expired")
    signed = shutil.copytree(secrets, directory / "secrets")
    subprocess.run(
        ["bash", "-c", _SIGN_ANEW], cwd=signed, check=True, capture_output=True
    )
    docker = ROOT / "docker"
    broker = shutil.copytree(docker / "kafka", directory / "kafka")
    with (broker / "server.properties").open("a") as properties:
        properties.write(_SPEAKS_TO_ITSELF_IN_CLEAR)
    with running(Deployment(signed)) as deployment:
        volumes = deployment._compose["services"]["kafka"]["volumes"]
        volumes[0] = volumes[0].replace("./kafka", os.path.relpath(broker, docker))
        deployment.start("kafka", "postgres")
        yield deployment


@pytest.mark.parametrize(
    ("service", "program"),
    [("kafka-access", "kafka_expired"), ("migrate", "postgres_expired")],
    ids=["kafka", "postgres"],
)
def test_a_server_whose_certificate_has_expired_is_refused(
    expired: Deployment, service: str, program: str
) -> None:
    """Who does not check certificates gets in, and our settings check them."""
    answers = json.loads(expired.run_python(program, service=service).splitlines()[-1])
    assert answers["unchecked"] == "welcome"
    assert "certificate verify failed" in answers["checked"]
