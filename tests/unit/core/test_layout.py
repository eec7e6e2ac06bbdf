"""A workflow's graph as a picture: every step has a place of its own, and every way an arrow."""

import pytest

from durableflows.core.definition import StepDefinition, StepKind
from durableflows.core.layout import ACROSS, HEIGHT, WIDTH, Picture, layout


def drawn(ways: dict[str, tuple[str, ...]]) -> Picture:
    """The picture of these steps, of which the first begins."""
    steps = {name: StepDefinition(name=name, kind=StepKind.TASK, to=to) for name, to in ways.items()}
    return layout(steps, next(iter(ways)))


GRAPHS: dict[str, dict[str, tuple[str, ...]]] = {
    "one": {"a": ()},
    "a line": {"a": ("b",), "b": ("c",), "c": ()},
    "a way past a step": {"a": ("b", "c"), "b": ("c",), "c": ()},
    "branches": {"a": ("b", "c", "d"), "b": ("e",), "c": ("e",), "d": ("e",), "e": ()},
    "a loop": {"a": ("b",), "b": ("c", "a"), "c": ()},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_each_step_has_a_place_and_each_way_an_arrow(name: str):
    ways = GRAPHS[name]

    picture = drawn(ways)

    assert sorted(box.name for box in picture.boxes) == sorted(ways)
    assert sorted((one.source, one.target) for one in picture.arrows) == sorted(
        (source, target) for source, targets in ways.items() for target in targets
    )
    for box in picture.boxes:
        assert 0 <= box.x <= picture.width - WIDTH
        assert 0 <= box.y <= picture.height - HEIGHT
        for other in picture.boxes:
            assert box is other or box.y != other.y or abs(box.x - other.x) >= WIDTH + ACROSS


def test_arrows_lead_down_and_only_a_loop_leads_back():
    picture = drawn(GRAPHS["a loop"])

    back = {(one.source, one.target) for one in picture.arrows if one.is_back}
    assert back == {("b", "a")}
    for arrow in picture.arrows:
        first, last = arrow.points[0], arrow.points[-1]
        assert (first[1] < last[1]) != arrow.is_back


def test_an_arrow_that_passes_a_step_runs_beside_it():
    picture = drawn(GRAPHS["a way past a step"])

    passed = next(box for box in picture.boxes if box.name == "b")
    arrow = next(one for one in picture.arrows if (one.source, one.target) == ("a", "c"))
    beside = [x for x, y in arrow.points if passed.y <= y <= passed.y + HEIGHT]
    assert beside
    assert all(x < passed.x or x > passed.x + WIDTH for x in beside)
