# Everything is set up from pyproject.toml alone, into .venv in this folder.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-long check bench clean

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "shisha-rt needs Python 3.11 or newer; say which with: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,dev,plot,solve,openvino,real]'
	@touch $@

demo: .venv/.ready
	$(BIN)/shisha-rt demo

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Tests that time nothing share the cores. The others start processes that do, and run one at a time.
TIMED_CLI := $(addprefix tests/cli/,test_demo.py test_submit.py)
SIDE_BY_SIDE := $(addprefix tests/,benchmarks costs daemon examples fabric graph lifecycle machine pipeline placement \
	plan ready simulate tuning wire wild stages/test_clean_model.py stages/test_placed.py stages/test_segments.py \
	stages/test_sessions.py stages/test_teams.py stages/test_trained.py stages/test_worker_start.py test_cache.py \
	test_docs.py test_job.py test_map.py) $(filter-out $(TIMED_CLI),$(wildcard tests/cli/test_*.py))

# Tests start hundreds of processes: none is to compile the sources anew, whatever the shell says.
test test-long: export PYTHONDONTWRITEBYTECODE :=

test: check
	$(BIN)/python -m pytest -m "not long" --numprocesses 2 $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest -m "not long" $(SIDE_BY_SIDE:%=--ignore=%)

# What `test` leaves out: most of the random cases, and what takes minutes.
test-long: .venv/.ready
	$(BIN)/python -m pytest -m long --numprocesses 2 $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest -m long $(SIDE_BY_SIDE:%=--ignore=%)

bench: .venv/.ready
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
