"""What others wrote is part of one line of a log, and never begins one or commands the terminal."""

import io
import logging
from collections.abc import Iterator

import pytest

from durableflows.core import log_lines

FORGED = "Ada\nERROR root: all is paid\r\x1b[2J\u202edekcart"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = log_lines.logger("durableflows.tried")
    logger.addHandler(handler)
    yield out
    logger.removeHandler(handler)


def test_a_text_with_line_breaks_is_one_line(log: io.StringIO) -> None:
    """R28."""
    log_lines.logger("durableflows.tried").warning("%s could not answer: %s", FORGED, ValueError(FORGED))

    (line,) = log.getvalue().splitlines()
    assert line.startswith("WARNING durableflows.tried: Ada ERROR root")
    assert not {"\x1b", "\r", "\u202e"} & set(line)


def test_names_in_a_mapping_are_plain_too(log: io.StringIO) -> None:
    log_lines.logger("durableflows.tried").warning("%(who)s: %(count)d", {"who": FORGED, "count": 3})

    (line,) = log.getvalue().splitlines()
    assert line.endswith(": 3")


def test_what_an_error_quotes_begins_no_line(log: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        log_lines.logger("durableflows.tried").exception("it failed")

    first, *rest = log.getvalue().splitlines()
    assert first == "ERROR durableflows.tried: it failed"
    assert rest[0].startswith("Traceback")
    assert all(line.startswith("    ") for line in rest[1:])
    assert "\x1b" not in log.getvalue()


def test_numbers_stay_numbers(log: io.StringIO) -> None:
    log_lines.logger("durableflows.tried").warning("%.1f s, %d, %s", 0.25, 7, None)

    assert "0.2 s, 7, None" in log.getvalue()


def test_the_guard_stands_once() -> None:
    log_lines.logger("durableflows.tried")

    assert len(log_lines.logger("durableflows.tried").filters) == 1
