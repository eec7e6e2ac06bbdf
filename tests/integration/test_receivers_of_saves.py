"""Code of projects and other apps that listens to every save is not run for rows of the engine, nor under its locks."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from durableflows import Transient, api
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.offices import Office, answer, office

pytestmark = pytest.mark.django_db(transaction=True)

SIGNALS = (pre_save, post_save, m2m_changed, pre_delete, post_delete)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """The tables of the engine that a receiver of everything has heard of."""
    found: list[str] = []

    def hear(sender: Any, **_: Any) -> None:
        if sender._meta.app_label == "durableflows":
            found.append(sender.__name__)

    for signal in SIGNALS:
        signal.connect(hear)
    yield found
    for signal in SIGNALS:
        signal.disconnect(hear)


def test_no_receiver_hears_of_what_people_do_with_a_request(heard: list[str]):
    """P11."""
    with office(remind=(timedelta(days=1),)) as desk:
        decided, expires = desk.asked(), desk.asked("Eve")
        api.ask_requester(decided.pk, "Which Ada?", by=desk.bo)
        api.reply(decided.pk, "The first one.", by=desk.ada)
        api.reassign(decided.pk, desk.cy, by=desk.bo, reason="Cy knows her")
        change_by_hand(desk, decided.run_id)
        answer(decided, desk.cy)
        lent = api.delegate(desk.cy, by=desk.bo, until=desk.world.clock.now() + timedelta(days=1), reason="away")
        api.end_delegation(lent.pk, by=desk.bo, reason="back")
        pay(desk)
        desk.world.clock.move_to(expires.expires_at)
        desk.world.run_until_idle()

    assert heard == []


def pay(desk: Office) -> None:
    provider = Provider(faults=[raise_without_acting(Transient("busy"))])
    api.start(pay_workflow(provider), {"amount": 5})
    api.pause_provider("test", reason="maintenance")
    desk.world.run_until_idle()
    api.resume_provider("test", reason="done")
    desk.world.run_until_idle()


def change_by_hand(desk: Office, run_id: Any) -> None:
    api.pause(run_id, by=desk.di, reason="the name was wrong")
    api.edit(run_id, by=desk.di, reason="the name was wrong", changes={"to": "Eva"})
    api.resume(run_id, by=desk.di, reason="it is right now")
