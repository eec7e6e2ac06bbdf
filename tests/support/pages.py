"""What tests of pages say often: where a request is decided, how an answer is posted, what a decision changes."""

import re
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, StepRun, WorkflowRun

RUN_COLUMNS = [column.attname for column in WorkflowRun._meta.concrete_fields]
LIST = "/admin/durableflows/approvalrequest/"
Browse = Callable[[User], Client]
Ask = Callable[..., ApprovalRequest]
People = Callable[..., User]


def address(asked: ApprovalRequest) -> str:
    return reverse("admin:durableflows_approvalrequest_decide", args=[asked.pk])


def result(asked: ApprovalRequest) -> str:
    return reverse("admin:durableflows_approvalrequest_decided", args=[asked.pk])


def inbox_address(asked: ApprovalRequest, page: str = "decision") -> str:
    """Where the inbox shows a request: its pages decision, decided and asked."""
    return reverse(f"durableflows:{page}", args=[asked.pk])


def answer(client: Client, asked: ApprovalRequest, verdict: str = "approve", **fields: Any) -> Any:
    data = {"verdict": verdict, "facts_digest": asked.facts_digest, **fields}
    return client.post(address(asked), data)


def text(response: Any) -> str:
    return str(response.content.decode())


def said(response: Any) -> str:
    """What the person reads after an answer that was taken: the words of the page that it leads to."""
    assert response.status_code == 302
    page = text(response.client.get(response["Location"]))
    return " ".join(re.sub(r"<[^>]+>", " ", page[page.index('<div class="df">') :]).split())


def rows() -> tuple[Any, ...]:
    """Everything that a decision would change."""
    return (
        list(ApprovalRequest.objects.order_by("pk").values()),
        list(ApprovalDecision.objects.order_by("pk").values()),
        list(StepRun.objects.order_by("pk").values()),
        list(WorkflowRun.objects.order_by("pk").values(*RUN_COLUMNS)),
        RunEvent.objects.count(),
    )


def shown_in(client: Client, asked: ApprovalRequest) -> dict[str, str]:
    """What the page posts along."""
    return {"facts_digest": asked.facts_digest, "shown": client.get(address(asked)).context["shown"]}


HOSTILE = """</script><script>alert(1)</script>"><img src=x onerror='alert(2)'>{{ 7|add:7 }} javascript:alert(3)"""


def is_inert(page: str) -> bool:
    return not any(piece in page for piece in ("<script>alert", "<img src=x", "onerror='", "14 javascript"))
