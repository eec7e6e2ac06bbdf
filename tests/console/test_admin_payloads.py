"""Lists load no payloads: what a run remembers, was given or got back is read on its own page only (R31)."""

import re

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import JSONField, Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from durableflows import api
from durableflows.models import ApprovalRequest, WorkflowRun
from tests.support.pages import Ask, Browse

pytestmark = pytest.mark.django_db

MODELS = [model for model in apps.get_app_config("durableflows").get_models() if model in site._registry]
SHOWN = {"durableflows_approvalrequest.binding", "durableflows_approvalrequest.context"}
"""A request's list says how much and to whom."""
MOST_QUERIES = 15


def test_lists_load_no_payload_and_ask_no_more_for_more_rows(ask: Ask, admin_user: User, browse: Browse):
    """R31: the columns of each query of each list, and how many queries there are."""
    client = browse(admin_user)
    for customer in ("Ada", "Bo"):
        decided = ask(customer)
        api.answer(decided.pk, "reject", by=admin_user, facts_digest=decided.facts_digest)
    few = {model: queries_of(client, model) for model in MODELS}
    for number in range(4):
        ask(f"more {number}")

    many = {model: queries_of(client, model) for model in MODELS}

    assert {model for model in MODELS if not len(few[model]) == len(many[model]) <= MOST_QUERIES} == set()
    loaded = {model: payloads() & columns(queries) for model, queries in many.items()}
    assert {model: found for model, found in loaded.items() if found} == {ApprovalRequest: SHOWN}


def queries_of(client: Client, model: type[Model]) -> list[str]:
    address = reverse(f"admin:durableflows_{model._meta.model_name}_changelist")
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address, {"standing": "all"} if model is ApprovalRequest else {}).status_code == 200
    return [str(query["sql"]) for query in queries]


def columns(queries: list[str]) -> set[str]:
    """All that they read: `table.column`."""
    read = [re.findall(r'"(\w+)"\."(\w+)"', sql.partition(" FROM ")[0]) for sql in queries]
    return {f"{table}.{column}" for pairs in read for table, column in pairs}


def payloads() -> set[str]:
    """Every column of the engine that may hold something large."""
    return {
        f"{model._meta.db_table}.{field.column}"
        for model in apps.get_app_config("durableflows").get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, JSONField)
    }


def test_what_counts_as_payload_is_found():
    assert {f"{WorkflowRun._meta.db_table}.{name}" for name in ("data", "manifest", "result", "budget")} <= payloads()
