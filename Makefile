# A fresh machine needs two commands, `make demo` and `make test`: each builds .venv when it is missing or stale.
# Kept readable for GNU make 3.81, which macOS still ships.

PYTHON ?= python3
ARGS   ?=

BIN      := .venv/bin
STAMP    := .venv/.stamp
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard */pyproject.toml))
PIP      := $(BIN)/python -m pip --disable-pip-version-check install -qq -c requirements/constraints.txt

# Tests start hundreds of processes: each would compile the packages again.
unexport PYTHONDONTWRITEBYTECODE

# What `make check` runs: the core, and whether pages and tests have what is new.
INNER := $(addprefix tests/,core laws manager)
INNER += $(patsubst %,tests/test_%.py,docs reference)
PURE  := not soak and not kernel and not postgres and not redis

# Folders whose tests run in fewer cases in `make test` than with AMPLIFIER_TEST_STORES=all.
WIDER := $(addprefix tests/,cli data durable kernel manager notes recall summary)

.PHONY: help demo check inner test adapters format lint bench soak guard mutants clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile | expand -t 16
	@echo 'ARGS="..." is handed on: make demo ARGS="--path ..", make test ARGS="-k storm"'

demo: $(STAMP)  ## a real session on this folder, compacting before your eyes
	@$(BIN)/amplifier-context run $(ARGS)

check: $(STAMP)  ## lint, and the tests that need no server and no kernel, at once: about a minute
	@$(MAKE) -s --no-print-directory -j 2 lint inner

inner: $(STAMP)
	@AMPLIFIER_TEST_STORES=memory AMPLIFIER_TEST_QUICK=1 \
		$(BIN)/python -m pytest -n auto --maxprocesses 4 -m '$(PURE)' $(INNER) $(ARGS)

test: $(STAMP)  ## the test-suite, on up to four cores
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 $(ARGS)

adapters: build/adapters/.stamp  ## examples/adapters against the libraries that they are for, which this installs
	@PYTHONPATH=build/adapters $(BIN)/python -m pytest tests/adapters $(ARGS)

# Beside .venv: types are checked where these libraries are not installed.
build/adapters/.stamp: $(STAMP) requirements/adapters.txt
	@rm -rf build/adapters
	@$(PIP) --target build/adapters -r requirements/adapters.txt
	@touch $@

format: $(STAMP)  ## ruff: format, and correct what it can
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lint: $(STAMP)  ## ruff (format and rules), pyright (strict)
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@mkdir -p build/links && ln -sfn ../../testing build/links/amplifier_context_testing
	@$(BIN)/pyright

bench: $(STAMP)  ## speed and memory, as a table
	@$(BIN)/python -m bench $(ARGS)

soak: $(STAMP)  ## the long-running tests, then every store and every recording
	@$(BIN)/python -m pytest -m soak -o faulthandler_timeout=3600 $(ARGS)
	@AMPLIFIER_TEST_STORES=all $(BIN)/python -m pytest -n auto --maxprocesses 4 $(WIDER) $(ARGS)

guard: $(STAMP)  ## record the hashes of views again, after a change that is meant to change views
	@$(BIN)/python -m tests.data.guard

mutants: $(STAMP)  ## judge the tests: run them against code with one small fault; ARGS="--minutes 30"
	@nice -n 10 $(BIN)/python -m tests.mutants $(ARGS)

clean:  ## remove .venv, caches and what was built
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} + -o -name '*.egg-info' -prune -exec rm -rf {} +

# The stamp holds the folder the venv was made in. A venv is full of absolute paths: one that was copied or moved, or
# whose Python is gone, is stale whatever the dates of the files say.
SOUND := $(shell $(BIN)/python -c pass 2>/dev/null && cat $(STAMP) 2>/dev/null)
ifneq ($(SOUND),$(CURDIR))
.PHONY: $(STAMP)
endif

OLD_PYTHON := Python 3.11 or newer is needed; try: make PYTHON=python3.12 ...
# Takes the lock, then becomes the command that follows; the lock is let go when that command ends, however it ends.
LOCKED := import fcntl, os, sys; f = open(".venv.lock", "w"); fcntl.flock(f, fcntl.LOCK_EX); \
	os.set_inheritable(f.fileno(), True); os.execvp(sys.argv[1], sys.argv[1:])

$(STAMP): Makefile $(PACKAGES:=/pyproject.toml) $(wildcard requirements/*.txt)
ifndef VENV_LOCKED
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo '$(OLD_PYTHON)' >&2; exit 1; }
	@$(PYTHON) -c '$(LOCKED)' $(MAKE) -s --no-print-directory VENV_LOCKED=1 $(STAMP)
else
	@echo 'Building .venv (a minute or so the first time) ...' >&2
	@test '$(SOUND)' = '$(CURDIR)' || $(PYTHON) -m venv --clear .venv
	@rm -f $(STAMP)
	@$(PIP) -r requirements/dev.txt
	@$(PIP) --no-build-isolation $(addprefix -e ./,$(PACKAGES))
	@echo '$(CURDIR)' > $(STAMP)
endif
