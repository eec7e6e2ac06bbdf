"""Where a refund stands, what is certain, unknown and next, and how moments are said: tables of values, no rows."""

from datetime import UTC, datetime, timedelta

import pytest

from customer_ops.situation import situation_of
from customer_ops.standing import Outside, Question, RunFacts, Standing, needs_a_look, standing_of
from customer_ops.templatetags.desk import clock_words, moment, near_words

NOW = datetime(2026, 11, 28, 10, 38, tzinfo=UTC)
LATER = NOW + timedelta(seconds=20)
NO_MAIL = "The customer got no mail about it"
QUESTION = Question("1", NOW, LATER, asks_others=False)


def facts(state: str = "RUNNING", *, payment: str = "", **more: object) -> RunFacts:
    outside = Outside(payment, NOW, LATER, LATER) if payment else None
    return RunFacts(state, payment=outside, **more)  # type: ignore[arg-type]


def ended(state: str, **more: object) -> RunFacts:
    return facts(state, is_ended=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "run", "stands"),
    [
        ("PENDING", None, Standing.UNDERWAY),
        ("PENDING", facts(), Standing.UNDERWAY),
        ("PENDING", facts(payment="PLANNED"), Standing.UNDERWAY),
        ("PENDING", facts("WAITING_HUMAN"), Standing.WAITING),
        ("PENDING", facts(payment="DISPATCHED", step_state="RUNNING"), Standing.SENT),
        ("PENDING", facts(payment="DISPATCHED", step_state="READY"), Standing.DOUBT),
        ("PENDING", facts("NEEDS_RECONCILIATION", payment="UNKNOWN"), Standing.DOUBT),
        ("PENDING", facts("PARKED", payment="UNKNOWN"), Standing.DOUBT),
        ("PENDING", facts("ENDING", payment="UNKNOWN", ending="cancel"), Standing.DOUBT),
        ("PENDING", facts(payment="ACCEPTED"), Standing.TAKEN),
        ("PENDING", facts(payment="CONFIRMED"), Standing.PAID),
        ("PENDING", facts("ENDING", ending="cancel"), Standing.ENDING),
        ("PENDING", facts("ENDING", ending="deadline"), Standing.STOPPING),
        ("PENDING", facts("PARKED"), Standing.PERSON),
        ("PENDING", facts("WAITING", needs_person=True), Standing.PERSON),
        ("PENDING", facts(alert="it was paid twice"), Standing.PERSON),
        ("REFUNDED", facts("SUCCEEDED", payment="CONFIRMED"), Standing.REFUNDED),
        ("REJECTED", facts("SUCCEEDED"), Standing.REJECTED),
        ("FAILED", None, Standing.FAILED),
        ("WITHDRAWN", facts("CANCELLED"), Standing.WITHDRAWN),
    ],
)
def test_where_a_refund_stands(state: str, run: RunFacts | None, stands: Standing) -> None:
    assert standing_of(state, run) is stands


@pytest.mark.parametrize(
    ("state", "run", "wanted"),
    [
        ("PENDING", None, False),
        ("PENDING", facts("WAITING_HUMAN"), False),
        ("PENDING", facts(payment="DISPATCHED", step_state="RUNNING"), False),
        ("PENDING", facts(payment="UNKNOWN"), True),
        ("REFUNDED", facts("NEEDS_RECONCILIATION"), True),
        ("REFUNDED", facts("SUCCEEDED", alert="late answer"), True),
        ("FAILED", facts("PARKED"), True),
    ],
)
def test_who_is_looked_after(state: str, run: RunFacts | None, wanted: bool) -> None:
    assert needs_a_look(state, run) is wanted


@pytest.mark.parametrize(
    ("run", "certain", "unknown", "coming"),
    [
        (None, "No money has left", None, None),
        (facts(step="pay", step_state="READY"), "No money has left", None, "The payment is about to begin"),
        (facts(step="pay", step_state="READY", wake_at=LATER), "No money has left", None, "The payment goes on"),
        (facts(step="pay", step_state="RUNNING"), "No money has left", None, "The payment is under way"),
        (
            facts(step="pay", step_state="RETRY_SCHEDULED", retry_reason="payments.refund: 429", wake_at=LATER),
            "No money has left",
            None,
            "The payment did not work (the refund: 429) and is tried again",
        ),
        (
            facts("WAITING_HUMAN", question=QUESTION),
            "No money has left",
            None,
            "A manager decides; if nobody answers, it is rejected by itself",
        ),
        (
            facts(payment="DISPATCHED", step="pay", step_state="RUNNING"),
            "It was sent to the payment provider",
            "Whether the provider paid: no answer is here yet",
            "The payment is under way",
        ),
        (
            facts("NEEDS_RECONCILIATION", payment="UNKNOWN", step="pay", step_state="NEEDS_RECONCILIATION"),
            "It was sent to the payment provider",
            "Whether the money went back",
            "The payment provider is asked what became of it",
        ),
        (
            facts("WAITING", payment="ACCEPTED", step="pay", step_state="WAITING"),
            "The payment provider has taken it",
            "When the provider will be done with it",
            "The payment provider is asked what became of it",
        ),
        (
            facts("NEEDS_RECONCILIATION", payment="UNKNOWN", needs_person=True, waits_for="no lookup tells"),
            "It was sent to the payment provider",
            "Whether the money went back",
            "A person must find out what happened: no lookup tells",
        ),
        (
            facts("PARKED", payment="REJECTED", parked_detail="error in our code"),
            "The payment provider refused it, so no money has left",
            None,
            "A person must look at it and let it go on: error in our code",
        ),
        (
            facts("ENDING", payment="UNKNOWN", ending="cancel", cancelled_by="ann"),
            "It was sent to the payment provider",
            "Whether the money went back",
            "Called off by ann; first it is found out whether it was paid",
        ),
        (
            facts("ENDING", payment="ABSENT", ending="deadline"),
            "The payment provider was asked and has no such refund: no money has left",
            None,
            "It is being stopped; it ends when nothing of it is on its way any more",
        ),
        (
            facts("ABANDONED", is_ended=True, payment="UNKNOWN"),
            "It was sent to the payment provider",
            "Whether the money went back",
            "A person has taken over what is open; it goes on counting as paid",
        ),
    ],
)
def test_what_is_certain_unknown_and_next(
    run: RunFacts | None, certain: str, unknown: str | None, coming: str | None
) -> None:
    told = situation_of("PENDING", "", run, now=NOW)

    assert told.certain is not None
    assert told.certain.text == certain
    assert (told.unknown.text if told.unknown else None) == unknown
    assert (told.next.text if told.next else None) == coming


def test_after_the_refund_the_mail_may_be_in_doubt() -> None:
    run = RunFacts("NEEDS_RECONCILIATION", payment=Outside("CONFIRMED"), mail=Outside("UNKNOWN"), step="tell_customer")

    told = situation_of("REFUNDED", "re_1", run, now=NOW)

    assert told.certain is not None
    assert told.certain.text == "The money went back, as re_1"
    assert told.unknown is not None
    assert told.unknown.text == "Whether the mail to the customer was taken by the mail server"


@pytest.mark.parametrize(
    ("state", "run", "look"),
    [
        ("REFUNDED", ended("CANCELLED", payment="CONFIRMED", cancelled_by="ann"), (f"{NO_MAIL}: called off by ann",)),
        ("REFUNDED", ended("DEADLINE_EXCEEDED", payment="CONFIRMED"), (NO_MAIL,)),
        ("REJECTED", ended("CANCELLED", cancelled_by="ann"), (f"{NO_MAIL}: called off by ann",)),
        ("FAILED", ended("DEADLINE_EXCEEDED"), (NO_MAIL,)),
        ("REFUNDED", ended("SUCCEEDED", mail=Outside("REJECTED")), (NO_MAIL,)),
        ("REFUNDED", ended("SUCCEEDED", mail=Outside("CONFIRMED")), ()),
        ("REFUNDED", ended("ABANDONED", mail=Outside("UNKNOWN")), ()),
        ("REFUNDED", facts("RUNNING", payment="CONFIRMED"), ()),
        ("WITHDRAWN", ended("CANCELLED", cancelled_by="ann"), ()),
        ("REFUNDED", ended("SUCCEEDED", mail=Outside("REJECTED"), alert="paid twice"), ("paid twice", NO_MAIL)),
    ],
)
def test_a_customer_whom_no_mail_will_tell_is_named(state: str, run: RunFacts, look: tuple[str, ...]) -> None:
    assert situation_of(state, "re_1", run, now=NOW).look == look


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (NOW, "10:38"),
        (datetime(2026, 12, 2, 10, 40, tzinfo=UTC), "Wednesday, 2 December, 10:40"),
        (datetime(2027, 1, 2, 0, 5, tzinfo=UTC), "Saturday, 2 January 2027, 00:05"),
    ],
)
def test_moments_are_said_as_people_read_them(at: datetime, says: str) -> None:
    assert clock_words(at, NOW) == says


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0, "now"),
        (4, "now"),
        (20, "in 20 seconds"),
        (-60, "1 minute ago"),
        (3_599, "in 60 minutes"),
        (86_400, "in 1 day"),
        (-172_800, "2 days ago"),
    ],
)
def test_how_far_away_a_moment_is(seconds: int, says: str) -> None:
    assert near_words(NOW + timedelta(seconds=seconds), NOW) == says


def test_a_moment_carries_the_exact_time() -> None:
    assert moment(NOW, NOW) == (
        '<time datetime="2026-11-28T10:38:00+00:00" title="2026-11-28 10:38:00 UTC">10:38</time>'
    )
