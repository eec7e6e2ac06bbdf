"""A ticker whose database is away says so once, in a line, asks less and less often, and says when it is back."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from durableflows.models import Worker
from tests.support.proxy import proxy
from tests.support.workers import ROOT, Fleet, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.slow]

AWAY_SECONDS = 12.0


@contextmanager
def ticker_alone(folder: Path, port: int) -> Iterator[Path]:
    """`manage.py durableflows ticker` at this port of the database. Gives its log."""
    where = connection.settings_dict
    url = f"postgresql://{where['USER']}:{where['PASSWORD']}@127.0.0.1:{port}/{where['NAME']}"
    environment = {**Fleet(folder).environment, "DATABASE_URL": url}
    log = folder / "ticker.log"
    with log.open("wb") as output:
        command = [sys.executable, "manage.py", "durableflows", "ticker"]
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield log
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(10)


def test_a_database_that_is_away_costs_a_line_and_not_a_traceback_a_sweep(tmp_path: Path):
    where = connection.settings_dict
    with proxy(str(where["HOST"]), int(where["PORT"])) as between, ticker_alone(tmp_path, between.port) as log:
        wait_for(lambda: Worker.objects.filter(swept_at__isnull=False).exists(), seconds=30, what="a sweep")

        between.close()
        wait_for(lambda: "the database is away" in log.read_text(), seconds=30, what="the ticker to notice")
        left_at = time.monotonic()
        wait_for(lambda: time.monotonic() - left_at > AWAY_SECONDS, seconds=AWAY_SECONDS + 5, what="a while")
        lines = log.read_text().splitlines()
        between.open()
        wait_for(lambda: "the database is back" in log.read_text(), seconds=20, what="the ticker to go on")
        beat = Worker.objects.get().heartbeat_at
        wait_for(lambda: Worker.objects.filter(swept_at__gt=beat).exists(), seconds=30, what="another sweep")

    assert len([line for line in lines if "the database is away" in line]) == 1
    assert len(lines) <= 2, lines
    assert "Traceback" not in log.read_text()
