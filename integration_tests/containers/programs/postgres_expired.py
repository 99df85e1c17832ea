"""Comes to a Postgres whose certificate has expired, and prints what it was told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

_TIMEOUT_S = 8

right = Path(os.environ["TALLYWEIR_HOME_DSN_FILE"]).read_text()


def _answer(conninfo: str) -> str:
    try:
        psycopg.connect(conninfo, connect_timeout=_TIMEOUT_S).close()
    except psycopg.OperationalError as error:
        return str(error)
    return "welcome"


# Without an authority to check by, libpq takes any certificate.
unchecked = make_conninfo(right, sslmode="require", sslrootcert="")
print(json.dumps({"checked": _answer(right), "unchecked": _answer(unchecked)}))
