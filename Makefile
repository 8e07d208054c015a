# Spadework's commands. `make` alone lists them. Each makes what it needs first; none asks a question.
#
# PYTHON           the Python that makes the environment (3.11 or newer)
# SPADEWORK_VENV   where the environment goes (.venv)
# BROWSER=no       `make test` without the browser tests
# JOBS             how many processes run tests side by side (auto: one for each core, at most 4)
# ARGS             passed on: make test ARGS="tests/stack -k lock"

PYTHON ?= python3
SPADEWORK_VENV ?= .venv
BROWSER ?= yes
JOBS ?= auto
ARGS ?=
BIN := $(SPADEWORK_VENV)/bin
export SPADEWORK_VENV

.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadfile
.PHONY: help demo up down status test check bench screenshots fuzz soak soak-trainer experiments manage environment environment-test

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: environment ## start everything with a demo run, print an address that signs in; Ctrl-C stops it
	@exec $(BIN)/python -m webapp.stack up --demo

up: environment ## start everything in the background
	@exec $(BIN)/python -m webapp.stack up --detach

down: environment ## stop what `make up` started; the data stays
	@exec $(BIN)/python -m webapp.stack down

status: environment ## what runs, and where
	@exec $(BIN)/python -m webapp.stack status

test: environment-test ## run all tests (BROWSER=no: without a browser; ARGS=…: pytest's arguments)
ifeq ($(BROWSER),no)
	@exec $(PYTEST) -m "not browser and not gpu" $(ARGS)
else
	@$(PYTHON) tools/bootstrap.py --test --browser
	@exec $(PYTEST) -m "not gpu" $(ARGS)
endif

check: environment-test ## formatting, types, layering, migrations: what CI checks before the tests
	@exec tools/check.sh $(BIN)

bench: environment-test ## measure; every file of tests/benchmarks prints a table
	@for file in tests/benchmarks/[a-z]*.py; do $(BIN)/python -m tests.benchmarks.$$(basename $$file .py) $(ARGS) || exit 1; done

screenshots: environment-test ## pictures of every page, light and dark
	@$(PYTHON) tools/bootstrap.py --test --browser
	@exec $(BIN)/python -m tests.browser.screenshots $(ARGS)

fuzz: environment-test ## the property tests with a hundred times as many examples
	@exec $(BIN)/python -m pytest -m "hypothesis and not gpu" --hypothesis-profile=fuzz --timeout=0 $(ARGS)

soak: environment-test ## a demo run under random kills, checked for losses (ARGS="--minutes 60")
	@exec $(BIN)/python -m tests.stack.soak $(ARGS)

experiments: environment-test ## train and evaluate all arms of docs/experiments.md; hours, can be stopped (ARGS="--arms spade --seeds 0")
	@exec $(BIN)/python -m trainer experiments run $(ARGS)

soak-trainer: environment-test ## the trainer under random kills, bit for bit (ARGS="kills --kills 20"), or its memory (ARGS=memory)
	@exec $(BIN)/python -m tests.trainer.soak $(ARGS)

manage: environment ## manage.py on the running stack: make manage ARGS=demo_link
	@exec $(BIN)/python -m webapp.stack manage $(ARGS)

environment:
	@$(PYTHON) tools/bootstrap.py

environment-test:
	@$(PYTHON) tools/bootstrap.py --test
