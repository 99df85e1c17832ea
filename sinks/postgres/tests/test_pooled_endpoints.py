"""Which endpoints are known for poolers, and where the server itself is."""

from __future__ import annotations

import pytest

from tallyweir.sinks.postgres.server.pooled_endpoints import find_pooled_endpoint


@pytest.mark.parametrize(
    ("host", "port", "user", "pooler", "direct"),
    [
        (
            "ep-cool-darkness-123456-pooler.us-east-2.aws.neon.tech",
            5432,
            "alex",
            "Neon's PgBouncer",
            "ep-cool-darkness-123456.us-east-2.aws.neon.tech:5432",
        ),
        (
            "aws-0-eu-central-1.pooler.supabase.com",
            6543,
            "postgres.abcdef",
            "Supabase's pooler",
            "db.abcdef.supabase.co:5432, as the user postgres",
        ),
        (
            "AWS-0-eu-central-1.Pooler.Supabase.com",
            5432,
            "postgres",
            "Supabase's pooler",
            "db.PROJECT.supabase.co:5432, as the user postgres",
        ),
        (
            "db.abcdef.supabase.co",
            6543,
            "postgres",
            "Supabase's PgBouncer",
            "db.abcdef.supabase.co:5432",
        ),
        (
            "shop.proxy-abcdef123456.eu-west-1.rds.amazonaws.com",
            5432,
            "app",
            "RDS Proxy",
            "the endpoint of the instance or the cluster, which RDS shows",
        ),
        (
            "readers.endpoint.proxy-abc.cn-north-1.rds.amazonaws.com.cn",
            5432,
            "app",
            "RDS Proxy",
            "the endpoint of the instance or the cluster, which RDS shows",
        ),
        (
            "shop.postgres.database.azure.com",
            6432,
            "app",
            "Azure's PgBouncer",
            "shop.postgres.database.azure.com:5432",
        ),
        (
            "shop-do-user-1-0.b.db.ondigitalocean.com",
            25061,
            "doadmin",
            "DigitalOcean's pool",
            "shop-do-user-1-0.b.db.ondigitalocean.com:25060",
        ),
        (
            "p.abcdef.db.postgresbridge.com",
            5431,
            "app",
            "Crunchy Bridge's PgBouncer",
            "p.abcdef.db.postgresbridge.com:5432",
        ),
    ],
)
def test_a_pooled_endpoint_is_told_with_the_direct_one(
    host: str, port: int, user: str, pooler: str, direct: str
) -> None:
    """As each service documents its names."""
    found = find_pooled_endpoint(host, port, user)
    assert found is not None
    assert (found.pooler, found.direct) == (pooler, direct)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("ep-cool-darkness-123456.us-east-2.aws.neon.tech", 5432),
        ("ep-pooler.example.com", 5432),
        ("db.abcdef.supabase.co", 5432),
        ("shop.abcdef123456.eu-west-1.rds.amazonaws.com", 5432),
        ("my-proxy-shop.abcdef123456.eu-west-1.rds.amazonaws.com", 5432),
        ("shop.cluster-abcdef.eu-west-1.rds.amazonaws.com", 5432),
        ("shop.postgres.database.azure.com", 5432),
        ("shop-do-user-1-0.b.db.ondigitalocean.com", 25060),
        ("127.0.0.1", 5432),
        ("/run/postgresql", 6432),
    ],
)
def test_a_direct_endpoint_is_not_taken_for_a_pooled_one(host: str, port: int) -> None:
    """Of others than these services, only their behaviour tells."""
    assert find_pooled_endpoint(host, port, "app") is None
