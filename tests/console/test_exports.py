"""What was decided, asked and looked at leaves as CSV: for those with the right, of their tenants, safe to open."""

import csv
import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client, override_settings

from durableflows import api, exports
from durableflows.errors import InvalidState, NotAllowed
from durableflows.models import ApprovalRequest
from durableflows.services.looks import facts_at
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.doors import Admin
from tests.support.pages import LIST, Ask, Browse, People, address, answer, text

pytestmark = pytest.mark.django_db

VIEW = "durableflows.view_approvalrequest"
FORMULA = '=HYPERLINK("https://elsewhere.example","x")'
HOSTILE = f"{FORMULA}\n+1;-2\t@SUM(1)\u202e"


@pytest.fixture
def auditor(person: People) -> User:
    return person("auditor", VIEW)


def table(response: Any) -> list[dict[str, str]]:
    written = b"".join(response.streaming_content).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(written, newline="")))


def read(what: str, **wanted: Any) -> list[dict[str, str]]:
    written = "".join(exports.lines(exports.Wanted(what, **wanted)))
    return list(csv.DictReader(io.StringIO(written, newline="")))


def test_an_auditor_takes_decisions_along(asked: ApprovalRequest, manager: User, auditor: User, browse: Browse) -> None:
    answer(browse(manager), asked, comment="fine, seen it")

    response = browse(auditor).get(f"{LIST}export/decisions.csv", {"standing": "all"})

    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"].startswith('attachment; filename="decisions-')
    (row,) = table(response)
    assert (row["decided_by"], row["verdict"], row["comment"]) == ("manager", "approve", "fine, seen it")
    assert (row["door"], row["origin"], row["right"]) == ("admin", "127.0.0.1", f"permission:{PERMISSION}")
    assert (row["asked_by"], row["title"], row["state"]) == ("asker", "Bonus for Ada", "APPROVED")
    assert row["facts_digest"] == asked.facts_digest
    assert '"customer": "Ada"' in row["facts"]


def test_requests_and_looks_are_tables_too(asked: ApprovalRequest, manager: User, auditor: User) -> None:
    Admin(manager).look(asked)

    (one,) = read("requests", by=auditor)
    (look,) = read("looks", by=auditor)

    assert (one["permission"], one["quorum"], one["state"]) == (PERMISSION, "1", "OPEN")
    assert (look["person"], look["door"], look["facts_digest"]) == ("manager", "admin", asked.facts_digest)


def test_a_decision_keeps_the_facts_that_it_was_about(asked: ApprovalRequest, manager: User, browse: Browse) -> None:
    Admin(manager).look(asked)
    SHOWN["amount"] = 1
    answer(browse(manager), asked)

    (look, _new) = read("looks")

    assert look["facts"] == str(look["facts"])
    assert facts_at(ApprovalRequest.objects.get(), asked.facts_digest) == asked.binding
    assert '"amount": {"amount_minor": 60000, "currency": "USD"}' in look["facts"]


@pytest.mark.parametrize("what", exports.TABLES)
def test_heads_stand_over_their_cells(what: str, asked: ApprovalRequest, manager: User) -> None:
    Admin(manager).look(asked)
    Admin(manager).answer(asked)
    row = {"decisions": asked.decisions, "requests": ApprovalRequest.objects, "looks": asked.views}[what].get()

    made = exports.TABLES[what].cells(row)

    assert tuple(made) == tuple(exports.TABLES[what].heads)


def test_no_text_of_others_becomes_a_formula(ask: Ask, manager: User, auditor: User, browse: Browse) -> None:
    """R28."""
    asked = ask(HOSTILE)
    answer(browse(manager), asked, comment=HOSTILE)

    response: Any = browse(auditor).get(f"{LIST}export/decisions.csv", {"standing": "all"})
    written = b"".join(response.streaming_content)

    (row,) = csv.DictReader(io.StringIO(written.decode("utf-8-sig"), newline=""))
    assert row["comment"] == "'=HYPERLINK(\"https://elsewhere.example\",\"x\")\n'+1;'-2\t'@SUM(1)⟦U+202E⟧"
    for cell in row.values():
        assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    assert "\u202e".encode() not in written


def test_the_filters_of_the_list_count(ask: Ask, manager: User, auditor: User, browse: Browse) -> None:
    done, _open = ask("Ada"), ask("Cy")
    answer(browse(manager), done)
    client = browse(auditor)

    def titles(**query: str) -> list[str]:
        return [row["title"] for row in table(client.get(f"{LIST}export/requests.csv", query))]

    assert titles(standing="all") == ["Bonus for Ada", "Bonus for Cy"]
    assert titles(standing="decided") == ["Bonus for Ada"]
    assert titles(q="Cy") == ["Bonus for Cy"]
    assert titles() == []


def test_the_list_offers_it_to_those_who_may(
    asked: ApprovalRequest, manager: User, auditor: User, browse: Browse
) -> None:
    assert f"{LIST}export/decisions.csv?standing=all" in text(browse(auditor).get(LIST, {"standing": "all"}))
    assert "export/" not in text(browse(manager).get(LIST))


@pytest.mark.parametrize("rights", [(), (PERMISSION,), ("durableflows.change_approvalrequest",)])
def test_without_the_right_nothing_leaves(rights: tuple[str, ...], asked: ApprovalRequest, person: People) -> None:
    """R25."""
    someone = person("someone", *rights)

    assert Admin(someone).client.get(f"{LIST}export/decisions.csv").status_code == 403
    with pytest.raises(NotAllowed):
        exports.lines(exports.Wanted("decisions", by=someone))


def test_a_table_that_is_none(auditor: User, browse: Browse) -> None:
    assert browse(auditor).get(f"{LIST}export/secrets.csv").status_code == 404
    assert browse(auditor).post(f"{LIST}export/decisions.csv").status_code == 405
    with pytest.raises(InvalidState):
        exports.lines(exports.Wanted("secrets"))


def test_only_the_own_tenants_leave(ask: Ask, person: People, manager: User) -> None:
    ours, theirs = ask("Ada"), ask("Bo")
    for one, tenant in ((ours, "acme"), (theirs, "other")):
        Admin(manager).look(one)
        api.answer(one.pk, "reject", by=manager, facts_digest=one.facts_digest)
        ApprovalRequest.objects.filter(pk=one.pk).update(tenant=tenant)

    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"}):
        ann = person("acme-ann", VIEW)
        for what in exports.TABLES:
            assert [row["title"] for row in read(what, by=ann)] == ["Bonus for Ada"]


def test_rows_are_read_page_by_page(
    ask: Ask, manager: User, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(exports, "PAGE", 2)
    names = [f"No. {number}" for number in range(5)]
    for name in names:
        asked = ask(name)
        api.answer(asked.pk, "reject", by=manager, facts_digest=asked.facts_digest)

    with django_assert_max_num_queries(3) as queries:
        rows = read("decisions")

    assert [row["title"] for row in rows] == [f"Bonus for {name}" for name in names]
    assert not [one for one in queries.captured_queries if '"durableflows_workflowrun"."data"' in one["sql"]], "R31"


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("durableflows", "export-decisions", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_the_same(asked: ApprovalRequest, manager: User, auditor: User, tmp_path: Any) -> None:
    Admin(manager).answer(asked)
    file = tmp_path / "decisions.csv"

    assert run() == "".join(exports.lines(exports.Wanted("decisions")))
    assert f"{file}: 1 rows" in run("--output", str(file), "--bom", "--by", "auditor")
    assert file.read_bytes().startswith(b'\xef\xbb\xbf"decision"')
    assert file.stat().st_mode & 0o077 == 0
    assert run("--what", "requests", "--workflow", "another").count("\n") == 1
    assert run("--since", "1h").count("\n") == 2
    assert run("--until", "1h").count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--by", "manager"), "may not export"),
        (("--by", "nobody"), "no active user"),
        (("--output", "/nowhere/at/all.csv"), "nowhere"),
    ],
)
def test_the_command_says_why_not(arguments: tuple[str, ...], words: str, manager: User) -> None:
    with pytest.raises(CommandError, match=words):
        run(*arguments)


def test_the_page_opened_by_an_auditor_without_the_right_to_answer(
    asked: ApprovalRequest, auditor: User, browse: Browse
) -> None:
    page = text(browse(auditor).get(address(asked)))

    assert 'name="verdict"' not in page
    assert "Who has looked (1)" in page


def test_the_inbox_hands_out_the_same(ask: Ask, manager: User, auditor: User, browse: Browse) -> None:
    done, _open = ask("Ada"), ask("Zoe")
    answer(browse(manager), done)
    client, address = browse(auditor), "/durableflows/inbox/export/{}.csv"

    assert address.format("looks") + "?show=all" in text(client.get("/durableflows/inbox/", {"show": "all"}))
    (row,) = table(client.get(address.format("decisions"), {"show": "all"}))
    assert (row["decided_by"], row["verdict"]) == ("manager", "approve")
    assert [one["title"] for one in table(client.get(address.format("requests"), {"q": "Zoe"}))] == ["Bonus for Zoe"]
    assert table(client.get(address.format("requests"), {"show": "all", "q": "a\x00b"})) == []


def test_the_inbox_hands_out_nothing_without_the_right(
    asked: ApprovalRequest, manager: User, auditor: User, browse: Browse, client: Client
) -> None:
    """R25."""
    address = "/durableflows/inbox/export/decisions.csv"

    assert browse(manager).get(address).status_code == 403
    assert "export/" not in text(browse(manager).get("/durableflows/inbox/"))
    assert client.get(address)["Location"].startswith("/login/")
    assert browse(auditor).get(address.replace("decisions", "secrets")).status_code == 404
    assert browse(auditor).post(address).status_code == 405
