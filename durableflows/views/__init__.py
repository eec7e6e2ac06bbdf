"""The inbox: pages for people who decide, and for those who asked. Included by a project with `durableflows.urls`.

Views read forms, call `api` and show what `reading` gathers; they decide nothing. Whoever is logged in may come in, and
sees what `selectors` lets them see.
"""
