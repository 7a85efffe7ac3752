# Everything is set up from pyproject.toml alone, into .venv in this folder.
PYTHON ?= python3
BIN := .venv/bin

# What is installed and what is here is compiled when it is first imported, once, whatever the shell says: hundreds of
# processes follow, and most of what is installed is never imported.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-long check bench docs clean

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "shisha-rt needs Python 3.11 or newer; say which with: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test,dev,plot,solve,openvino,real,ray,grpc,otel]'
	@touch $@

demo: .venv/.ready
	$(BIN)/shisha-rt demo

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

# Neighbours in a file share daemons, so files are dealt whole, the longest first: tests/dealing.py.
SIDE_BY_SIDE := --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: .venv/.ready
	@$(MAKE) --no-print-directory --jobs=2 check bytecode
	$(BIN)/python -m pytest -m "not long" $(SIDE_BY_SIDE)

# In a fresh clone each process would compile all that its tests import; mypy leaves a core free for that.
.PHONY: bytecode
bytecode: .venv/.ready
	-@$(BIN)/python -m pytest -m "not long" --collect-only -qq > /dev/null

# What `test` leaves out: most of the random cases, soaks, browsers, benchmarks' tables. Dozens of workers want the cores
# to themselves. Both parts run, whatever fails in the first.
test-long: .venv/.ready
	@failed=0; \
	$(BIN)/python -m pytest -m long --timeout 1800 --durations 20 $(SIDE_BY_SIDE) --ignore=tests/serving || failed=1; \
	$(BIN)/python -m pytest -m long --timeout 1800 --durations 20 tests/serving || failed=1; \
	exit $$failed

# Times the test files anew, by which they are dealt. On a host that does nothing else.
.PHONY: durations
durations: .venv/.ready
	$(BIN)/python -m pytest -m "not long" $(SIDE_BY_SIDE) --keep-durations

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
	rm -rf docs/_build .aarch64 .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

# What runs an engine, as on an older x86 processor: CPU=Haswell has no AVX-512, CPU=Nehalem no AVX. It takes
# qemu-x86_64-static (Debian's qemu-user-static), which is 40 times slower. Children are emulated like their parent: the
# interpreter of this environment is a script. No schedulers and sockets: those of the emulator are not the kernel's.
.PHONY: test-x86
CPU ?= Haswell
X86 := .venv/x86/$(CPU)
X86_TESTS ?= tests/measure/test_compile.py tests/measure/test_profile_devices.py tests/stages/test_int8.py \
	tests/stages/test_sessions.py tests/stages/test_input_formats.py tests/stages/test_segments.py \
	tests/stages/test_profile_devices.py tests/stages/test_shards.py tests/stages/test_placed.py

test-x86: .venv/.ready
	mkdir -p $(X86)/bin
	cp .venv/pyvenv.cfg $(X86)
	ln -sfn $(CURDIR)/.venv/lib $(X86)/lib
	printf '#!/bin/sh\nexec qemu-x86_64-static -cpu %s,check=off -0 "$$0" "%s" "$$@"\n' '$(CPU)' "$$(readlink -f $(BIN)/python)" > $(X86)/bin/python
	chmod +x $(X86)/bin/python
	XDG_CACHE_HOME=$(CURDIR)/$(X86)/cache $(CURDIR)/$(X86)/bin/python -m pytest -m "not long" --timeout 0 $(X86_TESTS)

# A daemon that serves, and tests of engine, cutting and worker, as on aarch64. It takes root, debootstrap and the emulator.
.PHONY: test-aarch64
test-aarch64: .venv/.ready
	tests/aarch64/run.sh
