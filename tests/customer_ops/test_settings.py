"""The project's own settings in a fresh process: they start with nothing set, and are safe as they stand."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.http import HttpRequest, HttpResponse

from customer_ops.secret_key import read_or_make_secret_key
from customer_ops.security import ContentSecurityPolicy

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, folder: Path, **environment: str) -> str:
    """Run code in a fresh process with the project's settings; what it printed."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    given = {"CUSTOMER_OPS_DATA": str(folder), "DJANGO_SETTINGS_MODULE": "customer_ops.settings", **environment}
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=kept | given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_needs_to_be_set(tmp_path: Path) -> None:
    code = """
import django
from django.core.management import call_command
django.setup()
call_command("check")
call_command("migrate", verbosity=0)
"""
    python(code, tmp_path)

    assert (tmp_path / "durableflows.sqlite3").exists()


def test_each_process_signs_with_the_same_key_and_nobody_else_reads_it(tmp_path: Path) -> None:
    code = "from django.conf import settings; print(settings.SECRET_KEY)"

    first, second = python(code, tmp_path), python(code, tmp_path)

    assert first == second
    assert len(first.strip()) > 50
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    assert python(code, tmp_path, DJANGO_SECRET_KEY="mine").strip() == "mine"


def test_processes_that_start_together_make_one_key(tmp_path: Path) -> None:
    keys: set[str] = set()
    together = threading.Barrier(8)

    def make() -> None:
        together.wait(5)
        keys.add(read_or_make_secret_key(tmp_path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(keys) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


@pytest.mark.parametrize(("debug", "expected"), [("", "False"), ("0", "False"), ("1", "True")])
def test_debug_is_off_unless_asked_for(tmp_path: Path, debug: str, expected: str) -> None:
    assert python("from django.conf import settings; print(settings.DEBUG)", tmp_path, DEBUG=debug).strip() == expected


def test_the_package_is_imported_without_settings_and_without_celery(tmp_path: Path) -> None:
    code = "import sys, customer_ops; print('celery' in sys.modules, 'django' in sys.modules)"

    assert python(code, tmp_path, DJANGO_SETTINGS_MODULE="").split() == ["False", "False"]


def test_each_thread_of_a_web_server_publishes_through_the_app_of_the_project(tmp_path: Path) -> None:
    code = """
import threading, django
django.setup()
from celery import current_app
names = []
thread = threading.Thread(target=lambda: names.append((current_app.main, current_app.conf.broker_url)))
thread.start(); thread.join()
print(*names[0])
"""
    assert python(code, tmp_path).split() == ["customer_ops", "filesystem://"]


@pytest.mark.parametrize(
    ("queue", "expected"), [("", ["celery", "celeryev", "celery"]), ("shop", ["shop", "shopev", "shop"])]
)
def test_a_queue_of_ones_own_brings_events_and_remote_control_of_ones_own(
    tmp_path: Path, queue: str, expected: list[str]
) -> None:
    """Otherwise Flower lists, and could end, the workers of whoever else is on that broker."""
    code = """
from customer_ops.celery import app
print(app.conf.task_default_queue, app.conf.event_exchange, app.conf.control_exchange)
"""
    assert python(code, tmp_path, CELERY_TASK_DEFAULT_QUEUE=queue).split() == expected


def test_static_files_are_served_without_debug_and_without_collecting(tmp_path: Path) -> None:
    code = """
import django
django.setup()
from django.test import Client
response = Client(headers={"host": "localhost"}).get("/static/customer_ops/app.css")
print(response.status_code, response["Content-Type"].split(";")[0])
response.close()
"""
    assert python(code, tmp_path).split() == ["200", "text/css"]


def test_sentry_gets_neither_local_variables_nor_bodies(tmp_path: Path) -> None:
    code = """
import sentry_sdk
from django.conf import settings
settings.DEBUG
options = sentry_sdk.get_client().options
print(options["include_local_variables"], options["send_default_pii"], options["max_request_body_size"])
"""
    assert python(code, tmp_path, SENTRY_DSN="http://key@127.0.0.1:9/1").split() == ["False", "False", "never"]


def test_each_page_forbids_inline_scripts_unless_it_brings_its_own_policy() -> None:
    plain = ContentSecurityPolicy(lambda request: HttpResponse())(HttpRequest())
    own = ContentSecurityPolicy(lambda request: HttpResponse(headers={"Content-Security-Policy": "x"}))(HttpRequest())

    assert "script-src 'self';" in plain["Content-Security-Policy"]
    assert "unsafe-inline" not in plain["Content-Security-Policy"]
    assert own["Content-Security-Policy"] == "x"
