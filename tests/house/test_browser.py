"""A machine without Chromium: a browser test says what to install, and nothing passes unseen."""

from pathlib import Path

import pytest

from tests.support.browser import PROGRAMS, NoBrowser, find_chromium


def test_a_missing_browser_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoBrowser, match=r"apt-get install chromium fonts-dejavu-core.*DURABLEFLOWS_SKIP_BROWSER=1"):
        find_chromium()


def test_a_named_browser_that_is_not_there_is_not_replaced_by_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program = tmp_path / PROGRAMS[0]
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() == str(program)

    monkeypatch.setenv("CHROMIUM", str(tmp_path / "another"))

    with pytest.raises(NoBrowser):
        find_chromium()
