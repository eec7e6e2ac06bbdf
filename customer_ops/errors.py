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


class FormAlreadySent(RefundRefused):
    """The form was sent before: with other content, or by somebody else."""

    code = "form_already_sent"


class RequestEnded(DurableflowsError):
    """The refund request has ended otherwise. Nothing changed."""

    code = "request_ended"
