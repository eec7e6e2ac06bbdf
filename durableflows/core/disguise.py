"""Makes visible what text of others could hide: directions, nothings, letters that look like others, blank distance.

Nothing is removed or refused: what would not be seen as what it is stands in ⟦brackets⟧. Every page, mail subject, log
line and export that shows a text of others asks this first; asking twice changes nothing. It makes no markup and is no
escaping. Reads only values. Source: R28; Unicode TR 36 and TR 39 for what is confused.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from unicodedata import category, name

ONE_LINE = 300

# Letters, signs and marks by their category, of which nothing is seen.
BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
_STRIKES = frozenset("\u0334\u0335\u0336\u0337\u0338\u20d2\u20d3\u20d8\u20d9\u20da\u20e5\u20e6\u20e8\u20ea\u20eb")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d\u180f]")
# More of these on one letter than any language puts there, and more distance than a text needs.
_MOST_MARKS, _MOST_BLANKS, _MOST_BREAKS = 4, 24, 6

# By script: letters that look like one of another script in this table.
_ALIKE = {
    "Latin": "ABCEGHIJKMNOPQSTUVWXYZacdeghijlopqsuvwxyz",
    "Cyrillic": "АВЕКМНОРСТУХЅІЈԌԚԜҮаеорсухѕіјԁԛԝһӏү",
    "Greek": "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναικρυχγητϲϳ",
    "Armenian": "ՍՕՏԼօսոհցզյ",
    "Cherokee": "ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏎᏔᏙᏚᏞᏟᏢᏦᏴ",  # noqa: RUF001 - that they look alike is the point
}
_LETTERS = frozenset("".join(_ALIKE.values()))
# Latin by name, but no language of letters and bills writes with them: a, g, l.
_ODD = frozenset("\u0251\u0261\u01c0")
_STYLES = ("Fullwidth", "Mathematical")

_MARK = re.compile(
    r"⟦(?:U\+[0-9A-F]{4,6}|\d+ (?:spaces|line breaks|marks)"
    + "".join(rf"|{script} [{letters}]+" for script, letters in _ALIKE.items())
    + ")⟧"
)
_SUSPECT = re.compile(rf"[^\x20-\x7e\n\t]|[ \t]{{{_MOST_BLANKS + 1}}}|\n{{{_MOST_BREAKS + 1}}}")
_BLANKS = re.compile(rf"[^\S\n]{{{_MOST_BLANKS + 1},}}")
_BREAKS = re.compile(rf"\n{{{_MOST_BREAKS + 1},}}")


def plainly(text: str) -> str:
    """The text with what could disguise in it spelled out: ⟦U+202E⟧, ⟦Cyrillic …⟧, ⟦300 spaces⟧. Line breaks stay."""
    if not _SUSPECT.search(text):
        return text
    before, text = text, _marked(text.replace("\r\n", "\n"))
    while text != before:  # a mark parts a word, and what is left of it may be another word
        before, text = text, _marked(text)
    return text


def in_one_line(text: str, limit: int = ONE_LINE) -> str:
    """The same in one line, cut off at the limit: for a log, the subject of a mail, a cell of a list."""
    flat = plainly(re.sub("\r\n|[\n\r\t\u2028\u2029]", " ", text[: limit + 1]))
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def is_disguised(value: object) -> bool:
    """Would a reader of this text, or of any text in this stored value, not see it as what it is?"""
    if isinstance(value, str):
        return plainly(value) != value.replace("\r\n", "\n")
    if isinstance(value, dict):
        return any(is_disguised(str(key)) or is_disguised(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(map(is_disguised, value))


def _marked(text: str) -> str:
    pieces = list(_pieces(text))
    in_use = _scripts_in_use("\n".join(piece for piece, is_mark in pieces if not is_mark))
    return "".join(piece if is_mark else _spelled(piece, in_use) for piece, is_mark in pieces)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and of each whether it is a mark that was made here before."""
    at = 0
    for mark in _MARK.finditer(text):
        yield text[at : mark.start()], False
        yield mark.group(), True
        at = mark.end()
    yield text[at:], False


def _scripts_in_use(text: str) -> frozenset[str]:
    """The scripts that the text is written in beyond doubt: by letters that look like no others."""
    scripts = {_script(one) for one in set(text) if one.isalpha()}
    certain = {_script(one) for one in set(text) - _LETTERS if one.isalpha()}
    return frozenset(certain | ({"Latin"} & scripts))


def _spelled(text: str, in_use: frozenset[str]) -> str:
    shown = [_seen(one, text[at - 1] if at else "") for at, one in enumerate(text)]
    for word in re.finditer(r"\w+", text):
        for at, mark in _alike(word.group(), in_use):
            shown[word.start() + at] = mark
    for start, end in _stacks(text):
        shown[start:end] = [f"⟦{end - start} marks⟧", *[""] * (end - start - 1)]
    found = _BREAKS.sub(lambda run: f"\n⟦{len(run.group())} line breaks⟧\n", "".join(shown))
    return _BLANKS.sub(lambda run: f" ⟦{len(run.group())} spaces⟧ ", found)


def _seen(one: str, before: str) -> str:
    """One character as it is shown after the one before it."""
    if one in "\n\t" or (one.isascii() and one.isprintable()):
        return one
    if one in "\u200c\u200d":  # they belong to some scripts, and to emoji
        is_hidden = not before or before.isascii() or category(before)[0] not in "LMS" or _script(before) in _ALIKE
    elif _SELECTORS.match(one):
        is_hidden = not _may_be_selected(before)
    else:
        is_hidden = category(one) in _HIDDEN or one in BLANK or one in _STRIKES
    return f"⟦U+{ord(one):04X}⟧" if is_hidden else one


def _may_be_selected(before: str) -> bool:
    """May a selector of a variant stand here? Behind letters of alphabets it carries what nobody sees."""
    if not before or _SELECTORS.match(before):
        return False
    kind = category(before)
    return (
        kind[0] == "S"
        or before in "#*0123456789\u203c\u2049\u2139"
        or (kind == "Lo" and _script(before) in ("Cjk", "Mongolian"))
    )


def _stacks(text: str) -> Iterator[tuple[int, int]]:
    """Where more marks stand on one letter than a language puts there, from the first that is too many."""
    at = 0
    for is_mark, run in groupby(text, key=lambda one: category(one) in ("Mn", "Me") and not one.isascii()):
        length = sum(1 for _ in run)
        if is_mark and length > _MOST_MARKS:
            yield at + _MOST_MARKS, at + length
        at += length


def _alike(word: str, in_use: frozenset[str]) -> Iterator[tuple[int, str]]:
    """The letters of a word that look like others, by their place; those that stand together share a mark."""
    if word.isascii():
        return
    scripts = Counter(script for one in word if (script := _script(one)) in _ALIKE)
    main = _main(word, scripts, in_use)
    foreign = [one in _LETTERS and _script(one) not in ("", main) for one in word]
    at = 0
    for script, run in groupby(zip(word, foreign, strict=True), key=lambda pair: _script(pair[0]) if pair[1] else ""):
        letters = "".join(one for one, _ in run)
        if script:
            yield at, f"⟦{script} {letters}⟧"
            yield from ((at + more, "") for more in range(1, len(letters)))
        else:
            yield from ((at + more, f"⟦U+{ord(one):04X}⟧") for more, one in enumerate(letters) if _is_odd(one, word))
        at += len(letters)


def _main(word: str, scripts: Counter[str], in_use: frozenset[str]) -> str:
    """The script that a word is believed to be written in."""
    certain = Counter(_script(one) for one in word if one not in _LETTERS and _script(one) in _ALIKE)
    if certain:
        most = max(certain.values())
        return "Latin" if certain["Latin"] == most else certain.most_common(1)[0][0]
    if len(scripts) == 1:  # only letters that look like others: what the rest is written in says what they are
        (script,) = scripts
        return script if script in in_use or "Latin" not in in_use else "Latin"
    return "Latin"


def _is_odd(one: str, word: str) -> bool:
    """Does it pass for a plain letter or digit in a word of plain ones?"""
    if one in _ODD or _script(one) in _STYLES:
        return any(other.isascii() and other.isalnum() for other in word)
    return one.isdecimal() and not one.isascii() and any(other in "0123456789" for other in word)


@lru_cache(maxsize=4096)
def _script(one: str) -> str:
    """The script of a letter or digit by its name: Latin, Cyrillic, Cjk, Mathematical; '' for all that is neither."""
    return name(one, "").partition(" ")[0].capitalize() if one.isalnum() else ""
