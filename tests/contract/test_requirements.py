"""The page of requirements says what the docstrings of tests say."""

import re

from tests.contract.source import ROOT
from tools import requirements


def test_the_page_is_current():
    written = (ROOT / requirements.PAGE).read_text("utf-8")

    assert written == requirements.page(), "run `python -m tools.requirements --write`"


def test_every_id_that_is_named_is_a_requirement():
    unknown = {name: where for name, where in requirements.proofs().items() if name not in requirements.texts()}

    assert not unknown


def test_ids_are_read_one_by_one_and_as_ranges():
    assert requirements.ids_in("S3.6 to S3.8, B.1; R24, P9, S2.10") == ["S3.6", "S3.7", "S3.8", "B.1", "S2.10"]


def test_the_packages_that_were_asked_for_are_used():
    """B.1."""
    pinned = (ROOT / "requirements.txt").read_text("utf-8").lower()

    for name in ("celery", "redis", "django", "django-fsm-2", "psycopg2-binary", "sentry-sdk"):
        assert re.search(rf"^{name}(\[\w+\])?==", pinned, re.MULTILINE), name


def test_the_top_level_is_as_it_was_asked_for():
    """B.2."""
    files = ("manage.py", "pyproject.toml", "requirements.txt")
    folders = ("durableflows", "customer_ops", "templates", "tests")

    assert all((ROOT / name).is_file() for name in files)
    assert all((ROOT / name).is_dir() for name in folders)
