"""What a test that commits leaves to the next one: no rows, and a connection that remembers nothing."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction

from durableflows.models import Worker
from tests.support import emptied
from tests.support.rivals import Rival

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def asked(statement: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    assert row is not None
    return row[0]


def test_no_table_holds_a_row_afterwards_but_those_that_are_left_alone():
    group = Group.objects.create(name="managers")
    group.permissions.set(Permission.objects.all()[:3])
    User.objects.create_user("ada").groups.add(group)

    assert emptied.empty("default")

    names = set(connection.introspection.table_names()) - {*emptied.LEFT_ALONE, "django_migrations"}
    assert len(names) > 30
    assert Worker._meta.db_table in names
    assert {name: asked(f'SELECT count(*) FROM "{name}"') for name in names} == dict.fromkeys(names, 0)
    assert Permission.objects.exists()


def test_a_session_is_given_on_as_if_it_were_new():
    process = asked("SELECT pg_backend_pid()")
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 4711; SET TimeZone = 'Asia/Tokyo'")
        cursor.execute("CREATE TEMPORARY TABLE left_over (); SELECT pg_advisory_lock(4711)")

    assert emptied.is_as_new(connection)

    assert asked("SELECT pg_backend_pid()") == process
    assert asked("SHOW statement_timeout") == "0"
    assert asked("SHOW TimeZone") == "UTC"
    assert asked("SELECT to_regclass('left_over')") is None
    assert asked("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == 0


def test_a_session_that_is_busy_is_not_given_on():
    with transaction.atomic():
        assert not emptied.is_as_new(connection)


def test_a_session_that_is_dead_is_not_given_on():
    process = asked("SELECT pg_backend_pid()")
    assert Rival(lambda: asked(f"SELECT pg_terminate_backend({process}, 5000)")).begin().outcome() is True

    assert not emptied.is_as_new(connection)
    connection.close()
