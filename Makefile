# Everything is set up from pyproject.toml alone, into .venv in this folder.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-long check bench docs clean

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "shisha-rt needs Python 3.11 or newer; say which with: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,dev,plot,solve,openvino,real,ray]'
	@touch $@

demo: .venv/.ready
	$(BIN)/shisha-rt demo

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Neighbours in a file share daemons: each core takes half of the tests, in order, and then what the other one has left.
SIDE_BY_SIDE := --numprocesses 2 --dist worksteal

# Tests start hundreds of processes: none is to compile the sources anew, whatever the shell says.
test test-long: export PYTHONDONTWRITEBYTECODE :=

test: check
	$(BIN)/python -m pytest -m "not long" $(SIDE_BY_SIDE)

# What `test` leaves out: most of the random cases, and what takes minutes. Dozens of workers want the cores to themselves.
test-long: .venv/.ready
	$(BIN)/python -m pytest -m long $(SIDE_BY_SIDE) --ignore=tests/serving
	$(BIN)/python -m pytest -m long tests/serving

bench: .venv/.ready
	$(BIN)/python -m benchmarks

# What the site needs and the tests do not. `venv` leaves what is there as it is.
.venv/.docs-ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: .venv/.docs-ready
	$(BIN)/sphinx-build --quiet --fail-on-warning --nitpicky --keep-going --fresh-env docs docs/_build/html
	@echo docs/_build/html/index.html

clean:
	rm -rf docs/_build .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
