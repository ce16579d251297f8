# Everything runs from the project's own .venv, which is built when it is missing or out of date.
PYTHON ?= python3.11
BIN := .venv/bin
# One thread per process: two threads that compete for a busy core are far slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo bench models results docs test test-full lint format clean

help:
	@echo "make setup      build .venv with the exact versions of constraints.txt"
	@echo "make demo       make Darcy data, train, test, write runs/demo/report.html (two minutes)"
	@echo "make bench      speed and memory beside other attentions, fills docs/speed.md (2.5 hours)"
	@echo "make models     train the small runs in models/ (half an hour)"
	@echo "make results    docs/results.md from results/experiments; RUN='table1 --seeds 3' runs more"
	@echo "make docs       the site of the documentation, in site/"
	@echo "make test       lint, types, import law and tests"
	@echo "make test-full  make test, and the checks that take minutes"
	@echo "make format     rewrite the code in the project's format"
	@echo "make clean      remove .venv and caches (never runs/)"

setup: .venv/.complete

# The stamp is written last, so that an interrupted build is built again. PIP_CONSTRAINT, unlike
# --constraint, also pins what pip installs to build the package.
.venv/.complete: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

demo: setup
	$(BIN)/python -m funcattn.demo

# After an interruption, the same command continues. It needs an otherwise idle machine.
bench: setup
	$(BIN)/funcattn bench --out results/bench.json --pictures docs/pictures --page docs/speed.md

# After an interruption, the same command continues.
models: setup
	$(BIN)/python benchmarks/bundled_models.py $(NAMES)

RUN ?= --tables
results: setup
	$(BIN)/funcattn reproduce $(RUN) --results results/experiments --page docs/results.md \
		--bench results/bench.json

# `make test` builds it too, and looks for dead links and for what it would fetch from elsewhere.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest -n 2 -m "not full"

test-full: lint
	$(BIN)/python -m pytest -n 2

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache
