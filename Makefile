# Everything happens in .venv, which `make install` creates. Only Python 3.11 or later and pip are needed.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test test-fast test-deep times lint format bench bench-install lock clean
.DEFAULT_GOAL := install

install: $(STAMP)

# The archive of Java's classes, which `doctor` makes, halves what starting Spark costs; without it all works.
# `venv` without `ensurepip` (Debian without python3-venv) still makes an environment; pip then installs from outside.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later was found; say which: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11; say which to use: make PYTHON=/path/to/python3.11"; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then $(PYTHON) -m venv --without-pip $(VENV); \
	else echo "$(PYTHON) has neither ensurepip nor pip: install python3-venv or python3-pip"; exit 1; fi

$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@if $(BIN)/python -c 'import pip' 2>/dev/null; then pip="$(BIN)/python -m pip"; \
	else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; set -ex; \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	$$pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	-@$(BIN)/timelapse doctor --no-spark --archive
	@touch $@

demo: install
	$(BIN)/timelapse demo

# ARGS goes to pytest: make test ARGS="tests/log -x". Without it everything runs, in two processes.
test: install
	$(BIN)/python -m pytest $(or $(ARGS),$(IN_TWO))

# While you work: of each test the first case, without Spark, other processes, the compiler, and what takes long: more than
# 0.3 seconds of processor time when `make times` measured it. Of each file with other tests than these the quickest runs.
test-fast: install
	$(BIN)/python -m pytest $(IN_TWO) --first-cases -m "not (spark or process or compiled or slow)" $(ARGS)

# All random examples and all combinations that tests name, of which the usual run tries some (tests/depth.py). It takes about
# three times as long.
test-deep: install
	TIMELAPSE_DEPTH=3 $(BIN)/python -m pytest $(or $(ARGS),$(IN_TWO))

# Runs the tests and writes how long they took (tests/times.json), by which `slow` is marked and long files come first.
times: install
	$(BIN)/python -m pytest $(IN_TWO) --write-times $(ARGS)

# Whole groups of tests (tests/groups.py), those that take long first (tests/conftest.py). Code that is compiled is kept:
# without it each process rewrites the assertions of all tests, and each process that a test starts compiles all modules.
test test-fast test-deep times: export PYTHONDONTWRITEBYTECODE =
IN_TWO := -n 2 --dist loadgroup --durations 25

lint: install
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

# ARGS goes to `timelapse bench`: make bench ARGS="--minutes 20", make bench ARGS="rivals --events 1000000"
bench: install
	$(BIN)/timelapse bench --out benchmarks/results $(ARGS)

# The rivals and the plots. They change no version of what is installed; PyFlink needs other ones: its own environment.
bench-install: install
	@if $(BIN)/python -c 'import pip' 2>/dev/null; then pip="$(BIN)/python -m pip"; \
	else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; set -ex; \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.lock
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv .venv-flink; \
	else $(PYTHON) -m venv --without-pip .venv-flink; fi
	@if .venv-flink/bin/python -c 'import pip' 2>/dev/null; then pip=".venv-flink/bin/python -m pip"; \
	else pip="$(PYTHON) -m pip --python .venv-flink/bin/python"; fi; set -ex; \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r requirements-flink.lock \
		|| { rm -rf .venv-flink; echo "PyFlink is left out: its lock is for Python 3.11"; }

# Needs uv. Writes the same locks for every platform and for every Python from 3.11 on; PyFlink's is for 3.11.
UV_LOCK := uv pip compile --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock:
	$(UV_LOCK) --universal --extra dev -o requirements.lock pyproject.toml
	$(UV_LOCK) --universal --extra bench -c requirements.lock -o requirements-bench.lock pyproject.toml
	echo "apache-flink==2.3.0" | $(UV_LOCK) -o requirements-flink.lock -

clean:
	rm -rf $(VENV) .venv-flink build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db
