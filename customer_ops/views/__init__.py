"""The pages of the support desk. Views read forms, call `services` and show the answer; they decide nothing."""

from customer_ops.views.call_off import CallOffRefund
from customer_ops.views.order import OrderPage, RequestRefund
from customer_ops.views.orders import OrderList

__all__ = ["CallOffRefund", "OrderList", "OrderPage", "RequestRefund"]
