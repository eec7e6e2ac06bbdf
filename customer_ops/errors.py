"""What the domain refuses, in words for the person who asked. Raised by models and services; views show the text."""

from durableflows import DurableflowsError, Money


class RefundRefused(DurableflowsError):
    """A refund cannot be asked for as it was. Nothing was stored."""

    code = "refund_refused"


class MoreThanLeft(RefundRefused):
    """The charge has less left than was asked for. `left` says how much."""

    code = "more_than_left"

    def __init__(self, asked: Money, *, left: Money) -> None:
        super().__init__(f"{asked.display} is more than the {left.display} left of this charge.")
        self.left = left


class WrongAmount(RefundRefused):
    """The amount is not positive, or not in the currency of the charge."""

    code = "wrong_amount"


class OtherLeft(RefundRefused):
    """All that is left was asked for, and it is another amount by now. `left` says how much."""

    code = "other_left"

    def __init__(self, asked: Money, *, left: Money) -> None:
        now = f"{left.display} is" if left.is_positive else "nothing is"
        super().__init__(
            f"You were shown {asked.display} as all that is left; by now {now} left. Look again, then ask."
        )
        self.left = left


class FormAlreadySent(RefundRefused):
    """The form was sent before: with other content, or by somebody else."""

    code = "form_already_sent"


class CannotCallOff(DurableflowsError):
    """The refund cannot be called off any more. Nothing changed."""

    code = "cannot_call_off"


class RequestEnded(DurableflowsError):
    """The refund request has ended otherwise. Nothing changed."""

    code = "request_ended"
