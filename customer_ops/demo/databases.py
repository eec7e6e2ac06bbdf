"""A database of its own for one check, beside the one that DATABASE_URL names: nobody's data is touched."""

import os
from urllib.parse import urlsplit, urlunsplit

CHECKED = "CUSTOMER_OPS_DEMO_DATABASE"


def fresh(url: str) -> dict[str, str]:
    """Create the check's database, and give the environment that names it. Empty for the embedded default."""
    if not url.startswith(("postgres://", "postgresql://")):
        return {"DATABASE_URL": ""}
    parts = urlsplit(url)
    name = f"{parts.path.lstrip('/')}_demo_check_{os.getpid()}"
    _execute(url, f'CREATE DATABASE "{name}"')
    return {"DATABASE_URL": urlunsplit(parts._replace(path=f"/{name}")), CHECKED: url}


def drop() -> None:
    """Drop the check's database, if it had one of its own."""
    from django.db import connections

    url = os.environ.get(CHECKED, "")
    if url:
        connections.close_all()
        name = urlsplit(os.environ["DATABASE_URL"]).path.lstrip("/")
        _execute(url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _execute(url: str, statement: str) -> None:
    import psycopg2

    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()
