"""A key is shown once, to who makes it, and never again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tallyweir.services.cli.app import build_app
from tallyweir.services.ingest.api_keys import KeyFile
from tallyweir.services.process.hashed_secrets import utc_now
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.protocol.errors import ConfigurationError


def run(file: Path, *arguments: str) -> Result:
    """The command, with the keys file named as services name it."""
    return CliRunner().invoke(
        build_app(),
        ["ingest-keys", *arguments],
        env={"TALLYWEIR_INGEST_KEYS_FILE": str(file)},
    )


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    """Its text goes to stdout alone, so that a pipe gets nothing else."""
    file = tmp_path / "keys.json"
    made = run(file, "create", "--producer", "shop", "--topic", "views")
    assert made.exit_code == 0
    text = made.stdout.strip()
    header = f"Bearer {text}".encode()
    assert KeyFile(file).ring.authenticate(header, utc_now()).id_prefix == "shop:"

    listed = run(file, "list")
    key_id, secret = text.split("_")[1:]
    assert key_id in listed.stdout
    assert secret not in listed.output + made.stderr + file.read_text()

    assert run(file, "revoke", key_id).exit_code == 0
    with pytest.raises(RefusedError):
        KeyFile(file).ring.authenticate(header, utc_now())


def test_options_of_a_key_are_kept(tmp_path: Path) -> None:
    """Topics, prefix and expiry."""
    file = tmp_path / "keys.json"
    options = ("--topic", "a", "--topic", "b", "--id-prefix", "")
    done = run(file, "create", "--producer", "x", *options, "--not-after", "2099-01-02")
    assert done.exit_code == 0
    (entry,) = json.loads(file.read_text())["keys"]
    assert (entry["topics"], entry["id_prefix"]) == (["a", "b"], "")
    assert entry["not_after"] == "2099-01-02T00:00:00+00:00"


def test_a_key_that_conflicts_is_not_made(tmp_path: Path) -> None:
    """The file stays as it was."""
    file = tmp_path / "keys.json"
    run(file, "create", "--producer", "shop", "--topic", "views")
    before = file.read_text()
    squatter = ("--producer", "x", "--topic", "views", "--id-prefix", "sho")
    done = run(file, "create", *squatter)
    assert isinstance(done.exception, ConfigurationError)
    assert done.exception.code == "KEYS_CONFLICT"
    assert file.read_text() == before
