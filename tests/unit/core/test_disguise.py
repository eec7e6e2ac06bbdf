"""What hides in a text is spelled out, what languages and emoji need stays, and asking twice changes nothing."""

import random
import time
from datetime import datetime

import pytest

from durableflows.core.disguise import in_one_line, is_disguised, plainly

CYRILLIC_A, CYRILLIC_P, CYRILLIC_Y = "\u0430", "\u0440", "\u0443"
GREEK_O = "\u03bf"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a⟦U+202E⟧b"),  # turns round what follows
        ("a\u2066b\u2069", "a⟦U+2066⟧b⟦U+2069⟧"),
        ("a\u200bb", "a⟦U+200B⟧b"),  # no width
        ("a\u200db\u200cc", "a⟦U+200D⟧b⟦U+200C⟧c"),
        ("a\u00adb", "a⟦U+00AD⟧b"),
        ("\ufeffa", "⟦U+FEFF⟧a"),
        ("a\u3164b\u2800", "a⟦U+3164⟧b⟦U+2800⟧"),  # letters without ink
        ("a\x1b[31m", "a⟦U+001B⟧[31m"),
        ("a\rb", "a⟦U+000D⟧b"),
        ("a\u2028b\x85", "a⟦U+2028⟧b⟦U+0085⟧"),
        ("\ue000", "⟦U+E000⟧"),
        ("\ud800", "⟦U+D800⟧"),
        ("\U000e0041", "⟦U+E0041⟧"),
        ("a\ufe01\ufe02", "a⟦U+FE01⟧⟦U+FE02⟧"),  # carry what nobody sees
        ("6\u03360\u0338", "6⟦U+0336⟧0⟦U+0338⟧"),  # strike out
        ("z" + "\u0301" * 20, "z" + "\u0301" * 4 + "⟦16 marks⟧"),
        ("a" + " " * 300 + "b", "a ⟦300 spaces⟧ b"),
        ("a" + "\u3000" * 40, "a ⟦40 spaces⟧ "),
        ("a" + "\n" * 50 + "b", "a\n⟦50 line breaks⟧\nb"),
        (f"p{CYRILLIC_A}ypal.com", f"p⟦Cyrillic {CYRILLIC_A}⟧ypal.com"),
        (f"{CYRILLIC_P}{CYRILLIC_A}{CYRILLIC_Y}pal", f"⟦Cyrillic {CYRILLIC_P}{CYRILLIC_A}{CYRILLIC_Y}⟧pal"),
        (f"g{GREEK_O}{GREEK_O}gle", f"g⟦Greek {GREEK_O}{GREEK_O}⟧gle"),
        (f"pay {CYRILLIC_P}{CYRILLIC_A} now", f"pay ⟦Cyrillic {CYRILLIC_P}{CYRILLIC_A}⟧ now"),
        ("M\u043e\u0441\u043a\u0432\u0430", "⟦Latin M⟧\u043e\u0441\u043a\u0432\u0430"),
        ("p\uff41y", "p⟦U+FF41⟧y"),
        ("\U0001d5c9ay", "⟦U+1D5C9⟧ay"),
        ("\u0261oogle", "⟦U+0261⟧oogle"),
        ("1\u0660\u0660", "1⟦U+0660⟧⟦U+0660⟧"),
    ],
)
def test_what_disguises_is_spelled_out(text: str, shown: str) -> None:
    """R28."""
    assert plainly(text) == shown
    assert is_disguised(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ada Brown, 9 Elm Road",
        "one\n\ntwo\tthree",
        "Łukasz Żółć, Jürgen Groß, Þór, Đặng, café, naïve, cafe\u0301",
        "Иван Сорокин",
        "\u041e\u041e\u041e Ромашка, 5 шт.",
        "Ελένη Παπαδοπούλου",
        "日本語とEnglishの mix、\uff11\uff12\uff13",
        "서울 Seoul, 北京 Beijing",
        "مرحبا ١٢٣",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian needs the joiner's opposite
        "\u0939\u093f\u0928\u094d\u200d\u0926\u0940",
        "👩\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3 👍🏽",
        "Δt = 5 µm, β-test, Ω",
        "שָׁלוֹם",
        "m² ½ № ™ €",
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert plainly(text) == text
    assert not is_disguised(text)


def test_a_line_break_of_windows_is_no_disguise() -> None:
    assert plainly("one\r\ntwo\u200b") == "one\ntwo⟦U+200B⟧"
    assert not is_disguised("one\r\ntwo")


def test_asking_twice_changes_nothing() -> None:
    letters = "a\u043ep\u0440c \u202e\u200d\u0301\n x\u0410\u65e5\u0261\u06601\ufe0f"
    letters += "⟦⟧U+0123 Cyrillic\u0430\u044f\u0444\u0416\u03a9\u03bfspaces"
    chance = random.Random(7)
    for _ in range(3000):
        text = "".join(chance.choices(letters, k=chance.randint(1, 14)))
        assert plainly(plainly(text)) == plainly(text)


def test_a_mark_that_somebody_wrote_hides_nothing() -> None:
    assert plainly("⟦\u202e⟧ ⟦U+202E\u200b⟧") == "⟦⟦U+202E⟧⟧ ⟦U+202E⟦U+200B⟧⟧"
    assert plainly(f"⟦Cyrillic p{CYRILLIC_A}y⟧") == f"⟦Cyrillic p⟦Cyrillic {CYRILLIC_A}⟧y⟧"


def test_a_line_has_one_line_and_an_end() -> None:
    assert in_one_line("one\r\nBcc: two\n\x1b[2J") == "one Bcc: two ⟦U+001B⟧[2J"
    assert in_one_line("x" * 500, 10) == "xxxxxxxxx…"
    assert len(in_one_line("\u202e" * 500, 300)) == 300


def test_stored_values_are_looked_through() -> None:
    assert is_disguised({"note": ["fine", {"a\u200b": 1}]})
    assert is_disguised({"amount": {"currency": f"US{CYRILLIC_P}"}})
    assert not is_disguised({"note": ["fine", {"a": None}], "at": str(datetime(2030, 1, 1))})  # noqa: DTZ001


def test_a_long_text_takes_no_long_time() -> None:
    begin = time.process_time()

    plainly(f"p{CYRILLIC_A}ypal \u202e" * 20_000)
    plainly("a\u0301" * 50_000)

    assert time.process_time() - begin < 10
