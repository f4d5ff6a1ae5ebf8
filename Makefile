# Everything starts here. `make` lists what there is; each target sets up what it needs.

PYTHON ?= python3
# Further options for pip, for example where `make peers` finds a build of torch without CUDA.
PIP_OPTIONS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup peers demo demo-real docs test test-quick check format audit chaos bench-quick clean

help: ## list what there is
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything in it (once: a minute or two)

demo: $(READY) ## tune a simulated cluster: see it work in two minutes (after setup)
	$(BIN)/tunerd demo

demo-real: $(READY) ## tune real programs for five minutes against their own defaults (after setup)
	$(BIN)/python examples/real/demo.py

peers: $(READY) ## add what tunerd is compared with and called from, 6 GB: without, tests are skipped
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) \
		-c constraints.txt -e '.[test,peers,trainers]'

docs: $(READY) ## build the documentation as a site, in build/site; a broken link is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) \
		-c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

# Three workers for two cores: a third of the time, tests wait for servers and processes.
test: $(READY) ## run the tests, with a real Kafka and PostgreSQL where they can run
	$(BIN)/pytest -n 3 --dist worksteal

test-quick: $(READY) ## run the tests that need no server and no process, in under a minute
	$(BIN)/pytest -n 2 --dist worksteal --quick

check: $(READY) ## formatter, linter, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

audit: ## known weaknesses of dependencies, in build/audit.json, and what there is, in build/sbom.json
	PYTHON="$(PYTHON)" PIP_OPTIONS="$(PIP_OPTIONS)" .ci/audit

chaos: $(READY) ## kill instances, brokers and the database while jobs come in (an hour or more)
	$(BIN)/python -m benchmarks.chaos --check

bench-quick: $(READY) ## run every benchmark on little data, as a smoke test
	@for program in $$(grep -l '"--quick"\|benchmarks.kit import' $$(grep -l '__main__' benchmarks/*.py)) \
			paper; do \
		echo "== $$program"; \
		$(BIN)/python -m benchmarks.$$(basename "$$program" .py) --quick || exit 1; done

clean: ## remove .venv and what tools left behind
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "tunerd needs Python 3.11 or newer; $(PYTHON) is older or missing: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || \
		$(PYTHON) -m venv --clear $(VENV) || { \
		echo "$(PYTHON) cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV), once: a minute or two" >&2
	@date +%s >$(VENV)/.began
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) \
		-c constraints.txt -e '.[test]'
	@$(BIN)/python -c 'from tunerd.core.estimators.trees import lightgbm; lightgbm()' || { \
		echo "LightGBM needs the OpenMP runtime; on Debian: apt-get install libgomp1" >&2; exit 1; }
	@echo "set up in $$(($$(date +%s) - $$(cat $(VENV)/.began))) s; from now on it takes none" >&2
	@touch $(READY)
