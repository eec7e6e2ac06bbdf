# Two commands are enough: `make demo` and `make test`. Each sets up what it needs first.

VENV ?= .venv
BIN = $(VENV)/bin
# What ruff, mypy and Django check needs a project, not a server.
CHECK_DJANGO = DATABASE_URL=sqlite://:memory: $(BIN)/python manage.py

.DEFAULT_GOAL := help
.PHONY: help install check test demo clean

help:
	@echo "make demo      the console, a worker, a payment sandbox and seeded cases on this machine; Ctrl-C stops all"
	@echo "make test      all tests on a throwaway PostgreSQL and Redis        (ARGS=tests/unit picks some)"
	@echo "make check     format, lint, types, layers, Django's checks, missing migrations"
	@echo "make install   only the environment in $(VENV)                        (PYTHON=python3.12 picks an interpreter)"
	@echo "make clean     removes $(VENV), .data (the demo's database too) and caches"

install:
	@VENV=$(VENV) tools/bootstrap.sh

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/contract
	$(CHECK_DJANGO) check
	$(CHECK_DJANGO) makemigrations --check --dry-run

test: install
	@tools/servers.sh
	$(BIN)/python -m tests.services -- $(BIN)/pytest $(ARGS)

demo: install
	$(BIN)/python manage.py demo $(ARGS)

clean:
	rm -rf .venv .data dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
