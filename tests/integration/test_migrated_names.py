"""A step stays itself whatever a new version calls it: keys are made of names, and a clean-up has its own (P3, P6)."""

from datetime import timedelta

import pytest

from durableflows import InvalidState, Run, StepReturn, Workflow, api, migration, sleep, step
from durableflows.core import registry
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import RunState
from durableflows.testing import World
from tests.support.flows import PayReceipt, Provider
from tests.support.look import fresh, state_of
from tests.support.releases import Old
from tests.support.rooms import at

pytestmark = pytest.mark.django_db(transaction=True)

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def two_mails(mail: EffectDefinition[PayReceipt]) -> None:
    class Mailing(Workflow[Old]):
        name, version, deadline = "mailing", 1, DAY

        @step(start=True, to="nap", effects=(mail,))
        def ask(self, run: Run[Old]) -> None:
            run.effect(mail, amount=1)

        @step(to="thank")
        def nap(self, run: Run[Old]) -> StepReturn:
            return sleep(HOUR, then=self.thank)

        @step(end=True, effects=(mail,))
        def thank(self, run: Run[Old]) -> None:
            run.effect(mail, amount=2)


def two_mails_with_names_exchanged(mail: EffectDefinition[PayReceipt]) -> None:
    class Mailing(Workflow[Old]):
        name, version, deadline = "mailing", 2, DAY

        @migration(from_version=1, steps={"ask": "thank", "thank": "ask"})
        def from_1(self, data):
            return data

        @step(start=True, to="nap", effects=(mail,))
        def thank(self, run: Run[Old]) -> None:
            run.effect(mail, amount=1)

        @step(to="ask")
        def nap(self, run: Run[Old]) -> StepReturn:
            return sleep(HOUR, then=self.ask)

        @step(end=True, effects=(mail,))
        def ask(self, run: Run[Old]) -> None:
            run.effect(mail, amount=2)


def a_clean_up_that_the_second_mail_belongs_to(mail: EffectDefinition[PayReceipt]) -> None:
    class Mailing(Workflow[Old]):
        name, version, deadline = "mailing", 2, DAY
        on_cancel = "thank"

        @migration(from_version=1)
        def from_1(self, data):
            return data

        @step(start=True, end=True, effects=(mail,))
        def ask(self, run: Run[Old]) -> None: ...

        @step(end=True, effects=(mail,))
        def thank(self, run: Run[Old]) -> None:
            run.effect(mail, amount=2)


@pytest.fixture
def mailed(world: World, request: pytest.FixtureRequest):
    """A run that has sent its first mail, and naps before the second, under the release that a test names."""
    provider = Provider()
    mail = at(provider, "mail.send")
    with registry.isolated():
        two_mails(mail)
        run = api.start("mailing", {"amount": 5})
        world.run_until_idle()
    with registry.isolated():
        request.param(mail)
        yield run, provider


@pytest.mark.parametrize("mailed", [two_mails_with_names_exchanged], indirect=True)
def test_a_step_that_has_the_name_now_under_which_another_one_has_acted_acts_under_a_key_of_its_own(mailed, world):
    run, provider = mailed

    api.migrate(run.pk, reason="deploy")
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert (len(provider.acts), len(set(provider.sends))) == (2, 2)


@pytest.mark.parametrize("mailed", [a_clean_up_that_the_second_mail_belongs_to], indirect=True)
def test_a_step_of_the_main_path_is_not_migrated_to_one_of_the_clean_up(mailed):
    """A run would succeed by what gives back what it holds."""
    run, _ = mailed

    with pytest.raises(InvalidState, match="thank belongs to the clean-up alone in version 2"):
        api.migrate(run.pk, reason="deploy")

    assert fresh(run).version == 1
