"""What the demo's processes are started with, and what its look at Flower lets pass."""

import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from customer_ops import services
from customer_ops.demo import place, watched
from customer_ops.demo.place import CannotStart, Place, Ports
from customer_ops.demo.stage import StoryFailed
from durableflows.models import StepRun
from tests.support.desk import make_agent, make_charge, usd


def test_ports_are_the_same_at_each_start_where_they_are_free() -> None:
    web = next(port for port in range(21_000, 31_000, 100) if all(map(place.is_free, (port + 25, port + 55))))

    ports = place.near_ports(web)

    assert (ports.web, ports.mails, ports.flower) == (web, web + 25, web + 55)
    assert Ports.read(str(ports)) == ports


def test_a_port_that_is_taken_is_replaced_except_the_desk_s() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port: int = taken.getsockname()[1]

        assert place.near_ports(port - 25).mails != port
        with pytest.raises(CannotStart, match=f"port {port} is in use"):
            place.check_port(port)


def test_ports_beyond_the_last_one_are_replaced() -> None:
    ports = place.near_ports(65_535)

    assert 0 < ports.mails < 65_536
    assert 0 < ports.flower < 65_536


def test_no_part_listens_where_another_does() -> None:
    ports = place.free_ports()

    assert len(set(str(ports).split())) == 5


def test_mail_goes_to_the_demo_s_own_server_whatever_else_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A demo that is started on a machine with a real mail server set writes to nobody."""
    monkeypatch.setenv("EMAIL_HOST", "smtp.shop.example")
    monkeypatch.setenv("EMAIL_HOST_PASSWORD", "secret")
    monkeypatch.setenv("EMAIL_BACKEND", "django.core.mail.backends.console.EmailBackend")
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")

    given = Place(tmp_path, Ports(1, 2, 3, 4, 5)).environment()

    assert {name: value for name, value in given.items() if name.startswith(("EMAIL", "FLOWER"))} == {
        "EMAIL_HOST": "127.0.0.1",
        "EMAIL_PORT": "3",
    }
    assert given["DEMO_MAIL_PAGE"] == "http://127.0.0.1:4/"


def task(*args: object, kwargs: str = "{}", **more: Any) -> watched.Tasks:
    """What Flower's API says of one delivery of a step."""
    return {"1": {"name": "refund.pay", "args": repr(args), "kwargs": kwargs, **more}}


@pytest.fixture
def step(db: None) -> StepRun:
    """The first step of a refund of Ada Brown's."""
    charge = make_charge(usd("10.00"))
    request = services.request_refund(charge.pk, usd("5.00"), "broken", by=make_agent(), form_token=uuid.uuid4())
    return StepRun.objects.get(run_id=request.run_id)


def test_flower_may_show_a_run_and_its_step(step: StepRun) -> None:
    watched.find_only_ids(task(str(step.run_id), str(step.pk)))


@pytest.mark.parametrize(
    "shown",
    [
        lambda run, step: task(run, step, kwargs="{'amount': '10.00'}"),
        lambda run, step: task(str(uuid.uuid4()), step),
        lambda run, step: task(run, step, result="mailed Ada Brown"),
    ],
    ids=["an argument more", "another run", "a name"],
)
def test_flower_must_not_show_more_than_ids(step: StepRun, shown: Callable[[str, str], watched.Tasks]) -> None:
    with pytest.raises(StoryFailed):
        watched.find_only_ids(shown(str(step.run_id), str(step.pk)))
