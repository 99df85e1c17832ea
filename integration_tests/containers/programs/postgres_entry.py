"""Comes to Postgres with the right settings and with one of them wrong, as JSON."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_TIMEOUT_S = 8
_OTHER_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"

right = conninfo_to_dict(Path(os.environ["TALLYWEIR_HOME_DSN_FILE"]).read_text())
cases = {
    "the right settings": {},
    "no encryption": {"sslmode": "disable", "channel_binding": "disable"},
    "a wrong password": {"password": "wrong"},
    "another authority": {"sslrootcert": _OTHER_AUTHORITIES},
    "another name": {"host": socket.gethostbyname("postgres")},
    "a password in clear": {"require_auth": "password"},
    "the superuser": {"user": "postgres"},
}


def _enters(changes: dict[str, str]) -> bool:
    conninfo = make_conninfo("", **{**right, **changes})
    try:
        psycopg.connect(conninfo, connect_timeout=_TIMEOUT_S).close()
    except psycopg.OperationalError:
        return False
    return True


print(json.dumps({name: _enters(changes) for name, changes in cases.items()}))
