"""A payment provider and a help desk for the demo and the tests: the part of their APIs that we use, on this machine.

Runs as a process of its own (`python -m customer_ops.sandbox --port 8100 --books FILE`) and keeps its own books, so
that they say what was done to a customer's money whatever our side believes. It fails on request in the ways in
which networks and providers fail; `customer_ops.sandbox.control` is the client for that.

Imports neither Django nor durableflows nor the gateway that is tested against it, and is never part of production.
"""
