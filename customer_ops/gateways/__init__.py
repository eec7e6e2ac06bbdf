"""The outside world behind the effects: one module a service, one request a call.

A gateway sends with the key it is given, finds by that key, and says by the class of its error how far a request got
(`durableflows.errors`). It never retries, never keeps a connection for a later call, and never touches the database.
"""
