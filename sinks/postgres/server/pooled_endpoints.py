"""Endpoints at which poolers of Postgres services answer, by their names and ports."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: What stands for a part of the direct endpoint that the name does not tell.
_UNTOLD = "PROJECT"
#: Endings of hosts and ports of poolers: whose they are, and the server's own port.
_BY_PORT = {
    (".supabase.co", 6543): ("Supabase's PgBouncer", 5432),
    (".postgres.database.azure.com", 6432): ("Azure's PgBouncer", 5432),
    (".db.ondigitalocean.com", 25061): ("DigitalOcean's pool", 25060),
    (".postgresbridge.com", 5431): ("Crunchy Bridge's PgBouncer", 5432),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledEndpoint:
    """An endpoint at which a pooler answers.

    Attributes:
        pooler: Whose pooler it is.
        direct: The endpoint of the server itself, as an instruction.
    """

    pooler: str
    direct: str


def find_pooled_endpoint(host: str, port: int, user: str) -> PooledEndpoint | None:
    """Tell by its name and port whether a pooler answers at an endpoint.

    Args:
        host: The host name of the connection.
        port: Its port.
        user: Its user, which holds the project's name with some poolers.

    Returns:
        None if nothing is known of it, which does not mean that there is no pooler.
    """
    name = host.lower().rstrip(".")
    first, _, domain = name.partition(".")
    if domain.endswith("neon.tech") and first.endswith("-pooler"):
        direct = f"{first.removesuffix('-pooler')}.{domain}"
        return PooledEndpoint(pooler="Neon's PgBouncer", direct=f"{direct}:{port}")
    if name.endswith(".pooler.supabase.com"):
        project = user.partition(".")[2] or _UNTOLD
        direct = f"db.{project}.supabase.co:5432, as the user {user.partition('.')[0]}"
        return PooledEndpoint(pooler="Supabase's pooler", direct=direct)
    if re.search(r"(^|\.)proxy-[^.]+\..+\.rds\.amazonaws\.com(\.cn)?$", name):
        direct = "the endpoint of the instance or the cluster, which RDS shows"
        return PooledEndpoint(pooler="RDS Proxy", direct=direct)
    for (ending, pooled), (pooler, own) in _BY_PORT.items():
        if port == pooled and name.endswith(ending):
            return PooledEndpoint(pooler=pooler, direct=f"{name}:{own}")
    return None
