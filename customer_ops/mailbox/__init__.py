"""A mail server that keeps what it takes and sends nothing on, with a page to read it: the demo's outside world.

`python -m customer_ops.mailbox` starts it. It knows nothing of refunds and shares nothing with the mail gateway.
"""
