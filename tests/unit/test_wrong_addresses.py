"""An address that cannot be read is one line that names it and the cure, and never a password."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECRET = "s3cret"
WRONG = [
    ("DATABASE_URL", "nonsense"),
    ("DATABASE_URL", f"mysql://u:{SECRET}@h/d"),
    ("DATABASE_URL", f"postgresql://u:{SECRET}@h:5x/d"),
    ("DATABASE_URL", f"postgresql://u:{SECRET}@[::1/d"),
    ("DATABASE_URL", f"postgresql://u:{SECRET}@h"),
    ("CELERY_BROKER_URL", "nonsense"),
    ("CELERY_BROKER_URL", f"redis://:{SECRET}@h:x/0"),
    ("CELERY_BROKER_URL", f"foo://u:{SECRET}@h"),
]


def run(variable: str, address: str, *command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    environment |= {"DJANGO_SETTINGS_MODULE": "customer_ops.settings", "CUSTOMER_OPS_DATA": str(folder)}
    return subprocess.run(
        [sys.executable, *command],
        env={**environment, variable: address},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(("variable", "address"), WRONG)
def test_a_wrong_address_is_one_clear_line_without_the_password(variable: str, address: str, tmp_path: Path):
    done = run(variable, address, "manage.py", "migrate", folder=tmp_path)

    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert variable in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_wrong_broker_ends_a_worker_without_a_traceback(tmp_path: Path):
    for address in (f"redis://:{SECRET}@h:x/0", f"foo://u:{SECRET}@h"):
        done = run(
            "CELERY_BROKER_URL", address, "-m", "celery", "-A", "customer_ops", "worker", "-c", "1", folder=tmp_path
        )

        assert done.returncode != 0
        assert "CELERY_BROKER_URL" in done.stderr
        assert "Traceback" not in done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_who_wants_the_traceback_gets_it(tmp_path: Path):
    done = run("DATABASE_URL", "nonsense", "manage.py", "migrate", "--traceback", folder=tmp_path)

    assert "Traceback" in done.stderr
