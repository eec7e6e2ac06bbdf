"""Watchers that come along: each is imported only when DURABLEFLOWS["WATCHERS"] names it, with its library."""
