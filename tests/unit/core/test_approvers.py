"""Who is asked about which amount, and by which right somebody may answer."""

from typing import Any, cast

import pytest

from durableflows import Approvers, Band, InvalidDefinition, InvalidState, Money
from durableflows.core.approvers import band_of, band_problems, band_words

MANAGER = Approvers("shop.approve")
FINANCE = Approvers(groups=("finance",), people=("ada",), quorum=2)
BANDS = (
    Band(Money(50_000, "USD"), None),
    Band(Money(500_000, "USD"), MANAGER),
    Band(Money(40_000, "EUR"), MANAGER),
    Band(None, FINANCE),
)


@pytest.mark.parametrize(
    ("amount", "by", "words"),
    [
        (Money(0, "USD"), None, "up to USD 500.00"),
        (Money(50_000, "USD"), None, "up to USD 500.00"),
        (Money(50_001, "USD"), MANAGER, "up to USD 5,000.00"),
        (Money(500_000, "USD"), MANAGER, "up to USD 5,000.00"),
        (Money(500_001, "USD"), FINANCE, "above USD 5,000.00"),
        (Money(1, "EUR"), MANAGER, "up to EUR 400.00"),
        (Money(40_001, "EUR"), FINANCE, "above EUR 400.00"),
        (Money(1, "JPY"), FINANCE, "any amount in JPY"),
    ],
)
def test_the_amount_says_who_is_asked(amount: Money, by: Approvers | None, words: str) -> None:
    """A limit is part of its band; a currency without limits is for the last band, the strictest."""
    band = band_of(BANDS, amount)

    assert band.by == by
    assert band_words(BANDS, band, amount.currency) == words


def test_less_than_nothing_is_in_no_band() -> None:
    """It would be in the lowest one, which may ask nobody."""
    with pytest.raises(InvalidState, match="less than nothing"):
        band_of(BANDS, Money(-1, "USD"))


@pytest.mark.parametrize(
    ("bands", "says"),
    [
        ((), ""),
        (BANDS, ""),
        (BANDS[:2], "the last one needs up_to=None"),
        ((Band(None, MANAGER), Band(None, FINANCE)), "put it last"),
        ((Band(Money(2, "USD"), None), Band(Money(2, "USD"), MANAGER), BANDS[-1]), "put lower limits first"),
        ((Band(Money(2, "USD"), None), Band(Money(1, "USD"), MANAGER), BANDS[-1]), "put lower limits first"),
        (("finance",), "is no band"),
    ],
)
def test_bands_that_leave_an_amount_open_are_refused(bands: Any, says: str) -> None:
    problems = " ".join(band_problems(bands))

    assert says in problems
    assert bool(problems) is bool(says)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Approvers, "nobody is named"),
        (lambda: Approvers(groups=cast("Any", "finance")), "a list of names"),
        (lambda: Approvers(people=("",)), "each must be a name"),
        (lambda: Approvers("a.b", quorum=0), "quorum=0"),
        (lambda: Approvers("a.b", quorum=cast("Any", True)), "quorum=True"),
        (lambda: Band(cast("Any", 500), None), "up_to=500"),
        (lambda: Band(Money(0, "USD"), None), "more than nothing"),
        (lambda: Band(None, cast("Any", "shop.approve")), "by='shop.approve'"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_made(make: Any, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        make()


@pytest.mark.parametrize(
    ("by", "groups", "username", "right"),
    [
        (MANAGER, (), "bob", "permission:shop.approve"),
        (Approvers("shop.other"), (), "bob", ""),
        (FINANCE, ("finance", "sales"), "bob", "group:finance"),
        (FINANCE, ("sales",), "bob", ""),
        (FINANCE, (), "ada", "person:ada"),
        (FINANCE, ("finance",), "ada", "person:ada"),
        (Approvers("shop.approve", groups=("finance",)), ("finance",), "bob", "group:finance"),
        (Approvers("shop.approve", groups=("finance",)), (), "bob", "permission:shop.approve"),
        (Approvers(people=("ada",)), (), "", ""),
    ],
)
def test_one_of_the_ways_is_enough_and_is_named(by: Approvers, groups: Any, username: str, right: str) -> None:
    assert by.right_of(has=lambda name: name == "shop.approve", groups=groups, username=username) == right


def test_a_list_of_names_can_be_too_short_for_its_quorum() -> None:
    assert not Approvers(people=("ada",), quorum=2).can_be_enough
    assert Approvers(people=("ada", "bob"), quorum=2).can_be_enough
    assert Approvers("a.b", people=("ada",), quorum=2).can_be_enough
    assert Approvers(groups=("finance",), quorum=9).can_be_enough


def test_it_is_said_in_words() -> None:
    everybody = Approvers("shop.approve", groups=("finance", "board"), people=("ada",))

    assert MANAGER.words() == "people with the permission shop.approve"
    assert MANAGER.words({"shop.approve": "“May approve”"}) == "people with the permission “May approve”"
    assert FINANCE.words() == "members of finance or ada"
    assert everybody.words() == "people with the permission shop.approve or members of finance or board or ada"
