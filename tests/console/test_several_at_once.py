"""Several requests are answered at once: each by itself, with its own checks, and told row by row (R22, R25)."""

import pytest
from django.contrib.auth.models import User

from durableflows import FactsChanged, api
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestView
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.doors import Several, words_of
from tests.support.pages import LIST, Ask, Browse, People, rows, text

pytestmark = pytest.mark.django_db

SEVERAL = f"{LIST}several/"


def fields(asked: list[ApprovalRequest], verdict: str = "approve", **more: str) -> dict[str, object]:
    return {"request": [f"{one.pk}:{one.facts_digest}" for one in asked], "verdict": verdict, **more}


def outcomes(page: str) -> list[str]:
    return [piece.partition('"')[0] for piece in page.split('data-outcome="')[1:]]


def test_the_list_leads_to_the_chosen_ones(ask: Ask, manager: User, browse: Browse) -> None:
    one, two = ask("Ada"), ask("Bo")
    client = browse(manager)

    page = text(client.get(LIST))
    chosen = client.get(SEVERAL, {"request": [str(one.pk), str(two.pk)]})

    assert f'action="{SEVERAL}"' in page
    assert f'name="request" value="{one.pk}"' in page
    shown = words_of(chosen)
    assert "Bonus for Ada" in shown
    assert "Bonus for Bo" in shown
    assert "USD 600.00" in shown
    assert "Approve all 2" in shown


@pytest.mark.parametrize("standing", ["open", "overdue", "by_me", "decided", "all"])
def test_only_what_waits_for_the_person_can_be_chosen(standing: str, ask: Ask, manager: User, browse: Browse) -> None:
    ask()

    assert "df-several" not in text(browse(manager).get(LIST, {"standing": standing}))


def test_each_row_says_what_became_of_it(ask: Ask, manager: User, person: People, browse: Browse) -> None:
    mine, done, own, changed, double = ask("A"), ask("B"), ask("C", by=manager), ask("D"), ask("E", quorum=2)
    api.answer(done.pk, "reject", by=person("second", PERMISSION), facts_digest=done.facts_digest)
    given = fields([mine, done, own, changed, double], comment="checked the list")
    given["request"][3] = f"{changed.pk}:{'0' * 64}"  # type: ignore[index]

    page = text(browse(manager).post(SEVERAL, given))

    assert outcomes(page) == ["taken", "late", "refused", "changed", "taken"]
    assert "2 of 5 answered" in page
    assert "lready rejected by second" in page
    assert "ou asked for this yourself" in page
    assert "more people must approve it" in page
    votes = set(ApprovalDecision.objects.filter(actor=manager).values_list("request", "comment"))
    assert votes == {(mine.pk, "checked the list"), (double.pk, "checked the list")}


def test_what_fails_for_one_stops_no_other(ask: Ask, manager: User, browse: Browse) -> None:
    broken, fine = ask("A"), ask("B")
    ApprovalRequest.objects.filter(pk=broken.pk).update(tenant="another")

    page = text(browse(manager).post(SEVERAL, fields([broken, fine], "reject")))

    assert outcomes(page) == ["gone", "taken"]
    assert "Bonus for A" not in page


def test_the_same_again_is_told_so(ask: Ask, manager: User, browse: Browse) -> None:
    both, client = [ask("A"), ask("B")], browse(manager)
    client.post(SEVERAL, fields(both))
    before = rows()

    assert outcomes(text(client.post(SEVERAL, fields(both)))) == ["again", "again"]
    assert outcomes(text(client.post(SEVERAL, fields([both[0], both[0]])))) == ["again"]
    assert rows() == before


def test_what_may_not_be_answered_is_named_and_left_out(
    ask: Ask, manager: User, person: People, browse: Browse
) -> None:
    own, fine, hidden = ask("A", by=manager), ask("B"), ask("C")
    ApprovalRequest.objects.filter(pk=hidden.pk).update(tenant="another")

    ids = [str(own.pk), str(fine.pk), str(hidden.pk), "no id", "0" * 36]
    page = words_of(browse(manager).get(SEVERAL, {"request": ids}))

    assert "It is left out." in page
    assert "3 of those that were chosen are not here" in page
    assert page.count('name="request"') == 1
    assert "Approve it" in page
    assert "Bonus for C" not in page


@pytest.mark.parametrize(
    ("change", "words"), [({"verdict": "maybe"}, "Choose approve or reject"), ({"comment": "x" * 4001}, "4000")]
)
def test_what_is_no_answer_is_refused_and_asked_again(
    change: dict[str, str], words: str, asked: ApprovalRequest, manager: User, browse: Browse
) -> None:
    before = rows()

    response = browse(manager).post(SEVERAL, {**fields([asked]), **change})

    assert response.status_code == 400
    assert words in text(response)
    assert f'value="{asked.pk}:{asked.facts_digest}"' in text(response)
    assert rows() == before


def test_nothing_chosen_decides_nothing(asked: ApprovalRequest, manager: User, browse: Browse) -> None:
    client, before = browse(manager), rows()

    assert "Nothing is chosen" in text(client.get(SEVERAL))
    assert client.post(SEVERAL, {"verdict": "approve"}).status_code == 400
    assert client.put(SEVERAL, {"verdict": "approve"}).status_code == 405
    assert rows() == before


def test_facts_that_changed_since_the_page_are_not_decided(
    asked: ApprovalRequest, manager: User, person: People
) -> None:
    visit = Several(manager)
    digest = visit.look(asked).digest
    SHOWN["amount"] = 1
    with pytest.raises(FactsChanged):  # from now on the request itself says the new ones
        api.answer(asked.pk, "approve", by=person("second", PERMISSION), facts_digest=digest)

    assert visit.answer(asked, digest=digest).outcome == "changed"
    assert not ApprovalDecision.objects.exists()


def test_the_page_shows_no_more_than_can_be_answered(
    ask: Ask, manager: User, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durableflows.admin.bulk.MOST", 2)
    three = [ask(name) for name in ("A", "B", "C")]

    page = words_of(browse(manager).get(SEVERAL, {"request": [str(one.pk) for one in three]}))

    assert page.count('name="request"') == 2
    assert "1 of those that were chosen are not here" in page
    assert len(outcomes(text(browse(manager).post(SEVERAL, fields(three))))) == 2


def test_the_pages_ask_the_database_no_more_for_many_rows(
    ask: Ask, manager: User, browse: Browse, django_assert_max_num_queries
) -> None:
    client, ids = browse(manager), [str(ask(f"No. {number}").pk) for number in range(9)]

    with django_assert_max_num_queries(20) as few:
        client.get(SEVERAL, {"request": ids[:2]})
    with django_assert_max_num_queries(20) as many:
        client.get(SEVERAL, {"request": ids})

    assert len(many) == len(few)
    assert RequestView.objects.count() == 9
