# Everything is set up from pyproject.toml alone, into .venv in this folder.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench clean

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "shisha-rt needs Python 3.11 or newer; say which with: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,dev,plot,solve,openvino]'
	@touch $@

demo: .venv/.ready
	$(BIN)/shisha-rt demo

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Tests that time nothing share the cores. The others start processes that do, and run one at a time.
SIDE_BY_SIDE := $(addprefix tests/,benchmarks costs graph lifecycle machine pipeline placement plan simulate tuning)

test: check
	$(BIN)/python -m pytest --numprocesses 2 $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE:%=--ignore=%)

bench: .venv/.ready
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
