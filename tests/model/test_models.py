"""The protocol of runs with branches, children, redrives and signals, searched to the end; each rule is needed."""

import pytest

from tests.model.check import Case, dropping, holding
from tests.model.search import search


@pytest.mark.parametrize("case", list(holding()), ids=str)
def test_every_state_keeps_the_promises_and_can_end(case: Case):
    found = search(case.model)

    assert (found.broken, found.trace) == ("", ())
    assert found.states > 100  # a search that sees nothing finds nothing


@pytest.mark.parametrize("case", list(dropping()), ids=str)
def test_without_one_rule_a_promise_breaks(case: Case):
    """So that the search is known to find something."""
    found = search(case.model)

    assert found.broken.startswith(case.breaks), " | ".join(found.trace)
