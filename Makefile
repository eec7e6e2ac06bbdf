# Two commands are enough: `make demo` and `make test`. Each sets up what it needs first.

VENV ?= .venv
# Programs run as modules: an environment that was moved with its folder still works.
RUN = $(VENV)/bin/python
# What ruff, mypy and Django check needs a project, not a server.
CHECK_DJANGO = DATABASE_URL=sqlite://:memory: $(RUN) manage.py

# Tests start processes by the hundred: what they import is compiled once, wherever the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install check test guards chaos demo clean

help:
	@echo "make demo      desk, worker, payment sandbox, mails, Flower and seeded cases on this machine; Ctrl-C stops all"
	@echo "make test      all tests on a throwaway PostgreSQL and Redis        (ARGS=tests/unit picks some)"
	@echo "make guards    drops each guard of the engine in a copy and looks who notices: half an hour   (ARGS=\"lease\" picks some)"
	@echo "make chaos     15 minutes of killed workers, broker and database under 2,000 runs (CHAOS_SEED=7 plays one again)"
	@echo "make check     format, lint, types, layers, Django's checks, missing migrations"
	@echo "make install   only the environment in $(VENV)                        (PYTHON=python3.12 picks an interpreter)"
	@echo "make clean     removes $(VENV), .data (the demo's database too) and caches"

install:
	@VENV=$(VENV) tools/bootstrap.sh

check: install
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/contract
	$(CHECK_DJANGO) check
	$(CHECK_DJANGO) makemigrations --check --dry-run

test: install
	@tools/servers.sh
	$(RUN) -m tests.services -- $(RUN) -m pytest $(ARGS)

guards: install
	@tools/servers.sh
	$(RUN) -m tests.guards $(ARGS)

# On a machine that does nothing else: CHAOS_RUNS are started evenly over CHAOS_MINUTES.
chaos: export CHAOS_RUNS := $(or $(CHAOS_RUNS),2000)
chaos: export CHAOS_MINUTES := $(or $(CHAOS_MINUTES),15)
chaos: export CHAOS_WORKERS := $(or $(CHAOS_WORKERS),4)
chaos: install
	@tools/servers.sh
	$(RUN) -m tests.services -- $(RUN) -m pytest tests/fault/test_chaos_everything.py $(ARGS)

demo: install
	$(RUN) manage.py demo $(ARGS)

clean:
	rm -rf $(VENV) .data dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
