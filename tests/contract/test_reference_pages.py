"""The pages that are printed from the code say what the code says, and leave nothing out."""

import dataclasses
import re

import pytest

from durableflows import boundaries, conf, errors
from durableflows.core.outcomes import FailureKind
from durableflows.core.states import EFFECT_OPEN
from durableflows.management import matrix, pages
from tests.contract.source import ROOT


@pytest.mark.parametrize("path", pages.PAGES)
def test_the_page_is_the_code(path: str):
    written = (ROOT / path).read_text(encoding="utf-8")

    assert written == pages.PAGES[path](), "run `manage.py durableflows graph --write-docs`"


def test_every_setting_has_a_text():
    assert set(pages.attribute_texts(conf.Settings)) == {one.name for one in dataclasses.fields(conf.Settings)}


def test_every_crash_point_has_a_text():
    """S2.37."""
    assert set(pages.attribute_texts(boundaries.Boundary)) == set(boundaries.Boundary.__members__)


def test_every_error_has_a_cure():
    known = [*pages.error_classes(), *pages.error_classes(errors.ControlFlow)]
    public = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    }

    assert set(known) == public
    assert {vars(cls)["code"] for cls in known} == set(pages.CURES)


def test_every_check_has_a_cure():
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "durableflows").glob("checks*.py"))
    written = set(re.findall(r'id="(durableflows\.[EW]\d+)"', sources))

    assert set(pages.check_ids()) == written
    assert all(cure for _, _, cure in pages.check_ids().values())


def test_the_matrix_has_every_kind_of_failure_and_every_unsettled_effect():
    """S2.39."""
    assert {name for name, *_ in matrix.failures()} >= {f"failed: {kind}" for kind in FailureKind}
    assert not EFFECT_OPEN - {"DISPATCHED", "UNDOING"} - {matrix.IN_DOUBT.state, matrix.ACCEPTED.state}
