"""The two addresses a deployment is told by: what each form means, and that a refusal shows no password."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from customer_ops.environment import read_broker_url, read_database_url


def database(url: str, folder: Path = Path("/nowhere")) -> dict[str, object]:
    return read_database_url(url, folder=folder)["default"]


def test_a_postgresql_address_is_taken_apart():
    read = database("postgresql://desk:p%40ss%2Fword@db.example:6432/shop%20one?sslmode=require")

    assert read["ENGINE"] == "django.db.backends.postgresql"
    assert [read[part] for part in ("USER", "PASSWORD", "HOST", "PORT", "NAME")] == [
        "desk", "p@ss/word", "db.example", "6432", "shop one",
    ]  # fmt: skip
    assert read["OPTIONS"] == {"connect_timeout": "5", "sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgres:///shop", "", ""),
        ("postgresql://localhost/shop", "localhost", ""),
        ("postgresql://[::1]:5433/shop", "::1", "5433"),
        ("postgresql:///shop?host=/run/Postgresql", "/run/Postgresql", ""),
        ("postgresql://%2frun%2fpostgresql/shop", "/run/postgresql", ""),
    ],
)
def test_hosts(url: str, host: str, port: str):
    read = database(url)

    assert (read["HOST"], read["PORT"], read["NAME"]) == (host, port, "shop")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///desk.sqlite3", "desk.sqlite3"),
        ("sqlite:////srv/desk%20one.sqlite3", "/srv/desk one.sqlite3"),
        ("sqlite://:memory:", ":memory:"),
        ("sqlite://", ":memory:"),
    ],
)
def test_sqlite_is_told_to_keep_what_it_commits(url: str, name: str):
    read = database(url)

    assert read["NAME"] == name
    assert read["OPTIONS"] == {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    }


def test_nothing_named_is_a_file_in_the_data_folder(tmp_path: Path):
    read = database("", folder=tmp_path / "new" / "data")

    assert read["NAME"] == str(tmp_path / "new" / "data" / "durableflows.sqlite3")
    assert (tmp_path / "new" / "data").is_dir()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://u:secret-1@h/d", "use postgresql://"),
        ("postgresql://u:secret-1@h", "names no database"),
        ("postgresql://u:secret-1@h:port/d", "host or port cannot be read"),
        ("postgresql://u:sec/ret-1@h/d", "host or port cannot be read"),
        ("secret-1", "not an address"),
        ("sqlite:///", "names no file"),
    ],
)
def test_a_bad_address_is_refused_without_showing_its_password(url: str, problem: str):
    with pytest.raises(ImproperlyConfigured, match=problem) as refusal:
        database(url)

    assert "ret-1" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_no_broker_named_is_a_folder_that_is_polled_quickly(tmp_path: Path):
    read = read_broker_url("", folder=tmp_path / "broker")

    options = read["broker_transport_options"]
    assert read["broker_url"] == "filesystem://"
    assert options["data_folder_in"] == options["data_folder_out"]
    assert Path(options["data_folder_in"]).is_dir()
    assert Path(options["control_folder"]).is_dir()
    assert options["polling_interval"] <= 0.1
    assert "worker_disable_prefetch" not in read


@pytest.mark.parametrize("url", ["redis://localhost:6379/0", "rediss://user:pw@cache:6380/1"])
def test_redis_holds_no_message_that_nobody_works_on(url: str):
    read = read_broker_url(url, folder=Path("/nowhere"))

    assert read["broker_url"] == url
    assert read["worker_disable_prefetch"] is True
    assert "visibility_timeout" in read["broker_transport_options"]


@pytest.mark.parametrize("url", ["memory://", "amqp://guest:guest@rabbit//", "sentinel://a:26379;sentinel://b:26379"])
def test_other_brokers_are_taken_as_they_are(url: str):
    read = read_broker_url(url, folder=Path("/nowhere"))

    assert read == {"broker_url": url, "broker_connection_retry_on_startup": True}
