"""Pages keep their word: samples are run as they stand, commands are ones that exist, links lead somewhere."""

import inspect
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from django.core.management import CommandError, get_commands, load_command_class

from durableflows import api
from durableflows.core import registry
from durableflows.management.commands.durableflows import Command
from durableflows.management.verbs import VERBS
from tests.contract import docs
from tests.contract.source import ROOT

PAGES = pytest.mark.parametrize("page", docs.pages(), ids=docs.name_of)
# README is written from the middle outwards; test_readme puts it together.
RUNNABLE = [page for page in docs.pages() if docs.source(page) and page.name != "README.md"]
SOFT = re.compile(r"\b(TODO|TBD|FIXME|coming soon|for now|simply|just)\b", re.IGNORECASE)


@PAGES
def test_samples_are_python(page: Path):
    for sample in docs.samples(page):
        assert compile(sample.text, docs.name_of(page), "exec").co_filename == docs.name_of(page)


@pytest.mark.parametrize("page", RUNNABLE, ids=docs.name_of)
def test_samples_run(page: Path, monkeypatch: pytest.MonkeyPatch):
    """S3.52."""
    module = ModuleType("sample")
    monkeypatch.setitem(sys.modules, "sample", module)

    with registry.isolated():
        exec(compile(docs.source(page), docs.name_of(page), "exec"), vars(module))

    assert [name for name in vars(module) if not name.startswith("__")], "the samples define nothing"


@PAGES
def test_commands_exist(page: Path):
    """S3.52."""
    for line in docs.commands(page):
        verb, *words = shlex.split(line.replace("[RUN]", ""))
        assert verb in get_commands(), line
        if verb == "durableflows" and words not in ([], ["VERB"], ["…"], ["--help"]):
            assert_accepted(words, line)


def assert_accepted(words: list[str], line: str) -> None:
    """Parse it as the command would. Where a sentence only names a verb, its options may be missing."""
    parser = Command().create_parser("manage.py", "durableflows")
    error = ""
    try:
        parser.parse_args([word for word in words if word != "..."])
    except CommandError as refusal:
        error = str(refusal)
    is_named_only = (len(words) == 1 or words[-1] == "...") and "the following arguments are required" in error
    assert not error or is_named_only, f"{line}: {error}"


def test_other_commands_load():
    for name in ("demo", "seed_demo"):
        assert load_command_class(get_commands()[name], name).help


@PAGES
def test_links_lead_somewhere(page: Path):
    for path, anchor in docs.links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{docs.name_of(page)} links to {path}"
        if anchor:
            assert anchor in docs.anchors(target), f"{docs.name_of(page)} links to {path}#{anchor}"


def test_the_page_of_verbs_shows_each_as_it_is():
    text = (ROOT / "docs/reference/api.md").read_text("utf-8")

    for name in set(api.__all__) - {"Explanation", "Fact", "Line", "Preview"}:
        signature = inspect.signature(getattr(api, name), eval_str=False)
        shown = [str(word.replace(annotation=word.empty)) for word in signature.parameters.values()]
        names = [part.strip() for part in re.findall(rf"^    api\.{name}\((.*)\) ->", text, re.MULTILINE)[0].split(",")]
        assert [part for part in names if part != "*"] == [part.replace(" = ", "=").replace("'", '"') for part in shown]


def test_the_page_of_verbs_names_each_command():
    text = (ROOT / "docs/reference/api.md").read_text("utf-8")

    assert not [verb for verb in VERBS if f"`{verb}`" not in text]


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        waiting += [(page.parent / path).resolve() for path, _ in docs.links(page) if path]

    assert not [docs.name_of(page) for page in docs.pages() if page not in seen]


@PAGES
def test_nothing_is_promised_for_later(page: Path):
    assert not SOFT.findall(page.read_text("utf-8"))


def test_each_decision_has_a_number_of_its_own_and_says_it():
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [page.name[:3] for page in decisions]

    assert numbers == [f"{number:03}" for number in range(1, len(decisions) + 1)]
    assert [page.read_text("utf-8")[2:5] for page in decisions] == numbers
