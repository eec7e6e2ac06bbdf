"""Whatever stands in an address of the console is answered: with nothing found, "not there" or "no" (R30)."""

from itertools import product
from urllib.parse import quote

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.auth.models import User

from durableflows.models import ApprovalRequest
from tests.support.pages import LIST, Browse, address

pytestmark = pytest.mark.django_db

MODELS = [
    model._meta.model_name for model in apps.get_app_config("durableflows").get_models() if model in site._registry
]
NAMES = ("q", "p", "state", "workflow", "standing", "o", "before", "id__exact", "nothing")
VALUES = ("%00", "%ED%A0%80", "%FF", "9" * 30, "-1", "'", "%F0%9F%98%80", "%5Cu0000")
IDS = ("%00", "x", "9" * 30, "00000000-0000-0000-0000-000000000000", "%ED%A0%80", "_5F", "..%2F")
ANSWERS = {200, 302, 400, 403, 404, 405}


def test_no_list_fails_whatever_is_asked_of_it(asked: ApprovalRequest, admin_user: User, browse: Browse):
    """R30: ?q=%00, unknown filters and values, a page number of 30 digits."""
    client = browse(admin_user)
    pages = [f"/admin/durableflows/{model}/?{name}={value}" for model, name, value in product(MODELS, NAMES, VALUES)]
    pages = [page for number, page in enumerate(pages) if "workflowrun" in page or "request" in page or not number % 7]

    failed = {page: status for page in pages if (status := client.get(page).status_code) not in ANSWERS}

    assert failed == {}
    runs = "/admin/durableflows/workflowrun/"
    assert client.get(f"{runs}?q=%00").status_code == 200
    assert client.get(f"{runs}?state=%00").status_code == 400
    assert client.get(f"{runs}?state=nothing", follow=True).status_code == 200
    assert client.get(f"{runs}?p={'9' * 30}", follow=True).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "workflowrun/?data__customer__startswith=A",
        "steprun/?lease_token__startswith=a",
        "sideeffect/?arguments__customer__regex=A",
        "approvalrequest/?binding__customer__startswith=A",
        "approvalrequest/export/requests.csv?standing=all&context__note__startswith=A",
    ],
)
def test_a_list_is_filtered_by_nothing_that_it_does_not_offer(
    query: str, asked: ApprovalRequest, admin_user: User, browse: Browse
):
    """P14: else an address asks letter by letter for what is masked."""
    assert browse(admin_user).get(f"/admin/durableflows/{query}").status_code == 400


def test_no_page_of_a_row_fails_for_an_id_that_is_none(asked: ApprovalRequest, admin_user: User, browse: Browse):
    """R30: malformed ids, in each address that has one; and the desk."""
    client = browse(admin_user)
    pages = [f"/admin/durableflows/{model}/{one}/{page}" for model, one, page in product(
        MODELS, IDS, ("change/", "history/", "delete/"))]  # fmt: skip
    pages += [f"{LIST}{one}/{page}/" for one, page in product(IDS, ("decide", "decided"))]
    pages += [f"/orders/{one}/" for one in IDS] + [f"/orders/{one}/refund/" for one in IDS]
    pages += [f"/?{name}={value}" for name, value in product(("q", "show", "page", "nothing"), VALUES)]
    pages += [f"{address(asked)}?{name}={value}" for name, value in product(("again", "next", "shown"), VALUES)]

    failed = {page: status for page in pages if (status := client.get(page).status_code) not in ANSWERS}

    assert failed == {}


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\U0001f600", "a\\u0000b"], ids=ascii)
def test_no_form_fails_for_a_comment(asked: ApprovalRequest, manager: User, browse: Browse, text: str):
    """R30: refused at its field, or kept as it is."""
    form = f"verdict=reject&facts_digest={asked.facts_digest}&comment={quote(text, errors='surrogatepass')}"
    page = browse(manager).post(address(asked), form, content_type="application/x-www-form-urlencoded")

    kept = list(asked.decisions.values_list("comment", flat=True))
    assert (page.status_code, kept) in [(302, [text]), (302, ["a���b"]), (400, [])]


def test_no_export_fails_whatever_is_asked_of_it(asked: ApprovalRequest, admin_user: User, browse: Browse):
    """R30: and none hands out more than was asked for, where a filter is none."""
    client = browse(admin_user)
    queries = ["q=%00", "standing=%FF", "created_at__gte=never", "requester__password__startswith=p", "nonsense=1"]

    pages = [f"{LIST}export/looks.csv?{query}" for query in queries]
    pages += [f"/durableflows/inbox/export/requests.csv?{query}" for query in queries]
    found = {page: client.get(page).status_code for page in pages}

    assert {page: status for page, status in found.items() if status not in ANSWERS} == {}
    assert found[f"{LIST}export/looks.csv?nonsense=1"] == found[f"{LIST}export/looks.csv?created_at__gte=never"] == 400
