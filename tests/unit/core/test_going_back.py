"""Which visits a redrive goes back before, computed from where each came from."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from durableflows.core.plan import Back, Origin, Visit, back_to, may_take_up

T0 = datetime(2026, 1, 5, tzinfo=UTC)
REACHES = {
    "begin": {"left", "right", "shared", "both", "last"},
    "left": {"shared", "both", "last"},
    "right": {"shared", "both", "last"},
    "both": {"last"},
}


def visit(number: int, name: str, came_from: int | None = None, **more: object) -> Visit:
    """The number is the id, and the hour it was made."""
    at = T0 + timedelta(hours=number)
    joined = [UUID(int=one) for one in more.pop("joined", [])]  # type: ignore[attr-defined]
    gather = more.pop("gather", None)
    began = more.pop("began", number)
    return Visit(
        id=UUID(int=number),
        name=name,
        is_join=name == "both",
        is_waiting=began is None,
        created_at=at,
        started_at=None if began is None else T0 + timedelta(hours=float(str(began))),
        came_from=None if came_from is None else UUID(int=came_from),
        joined=joined,
        gather=None if gather is None else UUID(int=int(str(gather))),
    )


def back(target: int, *visits: Visit, reaches: Mapping[str, set[str]] = REACHES) -> tuple[list[int], list[int]]:
    chosen = next(one for one in visits if one.id == UUID(int=target))
    found: Back = back_to(chosen, [one for one in visits if one is not chosen], reaches)
    return sorted(one.int for one in found.visits), sorted(one.int for one in found.waiting)


def test_only_what_a_visit_has_led_to_comes_after_it():
    rows = [visit(1, "begin"), visit(2, "left", 1), visit(3, "right", 1), visit(4, "shared", 3), visit(5, "shared", 2)]

    assert back(2, *rows) == ([5], [])
    assert back(3, *rows) == ([4], [])
    assert back(1, *rows) == ([2, 3, 4, 5], [])


def test_a_join_that_has_begun_waits_again_for_whom_it_had_waited():
    rows = [
        visit(1, "begin"),
        visit(2, "left", 1, joined=[4]),
        visit(3, "right", 1, joined=[4]),
        visit(4, "both", 2, began=6),
        visit(7, "last", 4),
    ]

    assert back(2, *rows) == ([4, 7], [4])
    assert back(1, *rows) == ([2, 3, 4, 7], [])
    assert back(4, *rows) == ([7], [])


def test_a_join_also_waits_again_for_a_branch_that_had_ended_elsewhere():
    rows = [visit(1, "begin"), visit(2, "left", 1), visit(3, "right", 1, joined=[4]), visit(4, "both", 3, began=6)]

    assert back(2, *rows) == ([4], [4])


def test_a_join_that_has_not_begun_stays_when_others_have_come_to_it():
    begun = [visit(1, "begin"), visit(2, "left", 1), visit(3, "right", 1, joined=[4]), visit(4, "both", 3, began=None)]

    assert back(2, *begun) == ([], [])
    assert back(3, *begun) == ([4], [])


def test_an_item_goes_back_before_the_join_that_gathers_it_and_not_before_other_items():
    rows = [
        visit(1, "begin", joined=[2]),
        visit(2, "both", 1, began=6),
        visit(3, "left", 1, gather=2, joined=[2]),
        visit(4, "left", 1, gather=2, joined=[2]),
        visit(5, "shared", 4, gather=2),
    ]

    assert back(3, *rows) == ([2], [2])
    assert back(3, *rows[:1], visit(2, "both", 1, began=None), *rows[2:]) == ([], [])


def test_a_join_that_led_to_the_visit_does_not_come_after_it_even_at_the_same_instant():
    loop = {**REACHES, "both": {"left", "both"}}
    rows = [visit(1, "begin", joined=[2]), visit(2, "both", 1, began=3), visit(3, "left", 2)]

    assert back(3, *rows, reaches=loop) == ([], [])


def test_rows_without_an_origin_count_by_the_graph_and_their_time():
    rows = [visit(1, "begin"), visit(2, "left"), visit(3, "shared")]

    assert back(2, *rows) == ([3], [])


def row(
    came_from: int | None, *, rewound: bool = False, is_open: bool = False, join: bool = False, joined=()
) -> Origin:
    origin = None if came_from is None else UUID(int=came_from)
    return Origin(origin, [UUID(int=one) for one in joined], is_join=join, is_rewound=rewound, is_open=is_open)


def may(visit: int, by: int, rows: dict[int, Origin]) -> bool:
    return may_take_up(UUID(int=visit), UUID(int=by), {UUID(int=number): one for number, one in rows.items()})


def test_a_shorter_or_another_way_takes_the_old_visit_up():
    """begin (1) had gone by pack (2) to pay (3)."""
    rows = {1: row(None), 2: row(1, rewound=True), 3: row(2, rewound=True)}

    assert may(3, 1, rows)
    assert may(3, 4, {**rows, 4: row(1)})


def test_what_a_branch_beside_may_come_to_yet_is_left_to_it():
    """begin (1) has gone to left (2) and right (3); shared (4) was left's."""
    rows = {1: row(None), 2: row(1, is_open=True), 3: row(1), 4: row(2, rewound=True)}

    assert not may(4, 3, rows)
    assert not may(4, 3, {**rows, 2: row(1)})  # left has chosen otherwise this time: it is nobody's
    assert may(4, 2, {**rows, 2: row(1)})


def test_what_was_done_for_both_branches_of_a_join_is_done_for_either():
    """left (2) and right (3) had gone by the join (4) to pay (5); now one of them goes there at once."""
    rows = {1: row(None), 2: row(1), 3: row(1), 4: row(2, rewound=True, join=True), 5: row(4, rewound=True)}

    assert may(5, 3, rows)


def test_who_has_come_to_a_join_has_led_to_what_it_leads_to():
    """left (2) had paid (5) itself; now both go by the join (4), to which right (3) has come first."""
    rows = {1: row(None), 2: row(1, joined=[4]), 3: row(1, joined=[4]), 4: row(3, join=True), 5: row(2, rewound=True)}

    assert may(5, 4, rows)
    assert not may(5, 3, rows)
