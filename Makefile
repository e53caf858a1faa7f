# Everything runs in .venv, which is made on first use and kept until
# pyproject.toml or constraints.txt changes.

PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= auto
ARGS    ?=

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit slow test-gpu format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP)  ## run examples/demo.py
	$(BIN)/python examples/demo.py $(ARGS)

test: lint types unit  ## lint, types and unit, in this order

lint: $(STAMP)  ## ruff: rules and formatting; import-linter: layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(STAMP)  ## mypy
	$(BIN)/mypy

# A worker for each processor, up to eight, with one thread in torch.
unit: $(STAMP)  ## pytest without the slow tests; ARGS="-k name" passes options on
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal \
	  --durations 20 $(ARGS)

slow: $(STAMP)  ## pytest with the slow tests alone
	$(BIN)/python -m pytest -m slow --durations 20 $(ARGS)

test-gpu: $(STAMP)  ## pytest with the tests of CUDA devices; fails where there is no such device
	@$(BIN)/python -c 'import torch; torch.cuda.is_available() or exit("make test-gpu: torch " \
	  + torch.__version__ + " finds no CUDA device here. Nothing was tested.")'
	$(BIN)/python -m pytest tests/cuda $(ARGS)

format: $(STAMP)  ## rewrite the sources as ruff would have them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, caches and build output
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is touched last, so an install that fails is begun again next time.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "softki needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	      "Try: make PYTHON=python3.11" >&2; exit 1; }; \
	  echo "Creating $(VENV)"; \
	  $(PYTHON) -m venv $(VENV); }
	@echo "Installing softki and its tools into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev]'
	@touch $@
