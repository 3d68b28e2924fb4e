# Needs Python >= 3.11 with pip, and make. Everything is installed into .venv.

PYTHON ?= python3
JOBS ?= auto
BENCH_ARGS ?=
WILD_ARGS ?=

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALLED := .venv/.installed

.PHONY: help demo test test-slow test-all test-clients test-wild check wheel bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: $(INSTALLED)-demo  ## fit the penguins and show what comes out
	@$(BIN)/posteriori demo

test: $(INSTALLED)-dev  ## fast tests and doctests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

test-slow: $(INSTALLED)-dev  ## the tests that `make test` leaves out
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow

test-all: $(INSTALLED)-dev  ## all tests, the slow ones too
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m ""

# Each file in a process of its own: the libraries of KServe and of MLServer define the same messages.
test-clients: $(INSTALLED)-demo .venv-clients/.installed  ## the server asked by clients of KServe, Triton, MLServer and MLflow
	@set -e; for tests in tests/clients/test_*.py; do .venv-clients/bin/python -m pytest -q "$$tests"; done

test-wild: $(INSTALLED)-dev  ## tables and numbers of strangers; fewer by WILD_ARGS="tables --tables 30"
	$(BIN)/python -m benchmarks.wild $(WILD_ARGS)

check: $(INSTALLED)-dev  ## lint, format, types, layers, and the wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory wheel

# The wheel's own code must run: not the editable src/, not the current directory.
wheel: $(INSTALLED)-dev  ## build the wheel, install it elsewhere, run its demo
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	python="$(CURDIR)/$(BIN)/python"; \
	"$$python" -m build --wheel --no-isolation --outdir "$$tmp/dist" .; \
	$(INSTALL) --no-deps --target "$$tmp/site" "$$tmp"/dist/*.whl; \
	cd "$$tmp"; export PYTHONPATH="$$tmp/site"; \
	"$$python" -P -c 'import os, posteriori; assert posteriori.__file__.startswith(os.environ["PYTHONPATH"] + os.sep), posteriori.__file__'; \
	"$$python" -P -m posteriori demo

bench: $(INSTALLED)-bench  ## benchmarks; options in BENCH_ARGS="..."
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

clean:  ## remove what was built or cached, .venv too
	rm -rf .venv .venv-clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(INSTALLED)-demo: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[serve]'
	@touch $@

.venv-clients/.installed: tests/clients/requirements.txt tests/clients/without-dependencies.txt
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/clients/without-dependencies.txt
	@touch $@

$(INSTALLED)-%: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[$*]'
	@touch $@
