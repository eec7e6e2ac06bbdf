"""The engine's pages under django-unfold.

A process of its own: which apps are installed, and which class the admin's site has, is settled once when Django
starts; to change it in this process would change it for every test that follows.
"""

import os
import subprocess
import sys

import pytest

from tests.settings import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.django_db
def test_every_page_is_shown_in_the_frame_of_unfold():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ds=tests.unfold_settings"]
    done = subprocess.run(
        [*command, "tests/console/test_admin_pages.py"],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.unfold_settings"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
