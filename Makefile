# make demo [KEEP=1]   the whole story on a local stack; KEEP=1 leaves it running
# make test [ARGS=..]  the quick tests, lint among them; ARGS go to pytest; TIER=slow, or all
# make bench [ARGS=..] the benchmarks: ratios measured in one run
# make faults [ARGS=..] the fault laboratory: seeded, goes on where it ended
# make release         the wheel and its lock, if every experiment of the laboratory has run on this code
# make lint | format | lock | wheel | clean
#
# All that is needed is Python 3.11 or newer, with pip and venv. PYTHON=... names another one.

PYTHON ?= python3
# Tests mostly wait: for servers, deadlines, states. Each worker has a Postgres and a Redis of its own. Kafka, OpenSearch
# and Kafka Connect are one set for all in a quick run, and one a worker in a slow one, whose tests stop them: there all
# files that share a JVM go to one worker.
# Files go out in the order of tests/conftest.py: by number of tests, the few longest ones would come last.
# Each worker collects all tests first, which takes ten seconds of CPU, and has servers that are never quite at rest:
# four keep two cores busy, three do not.
WORKERS ?= 4
# Eight tests in a hundred take most of the time. A quick run leaves those out that are marked slow, and has random tests
# try a quarter of their examples. TIER=all tries all, and so does the laboratory.
TIER ?= quick
TESTS_quick := -m "not long and not slow" --one-kafka
TESTS_slow := -m "slow and not long" --together --durations=100 --durations-min=8
EXAMPLES_quick := 0.25
EXAMPLES_slow := 1
EXAMPLES_all := 1
$(if $(EXAMPLES_$(TIER)),,$(error TIER is quick, slow or all, and not $(TIER)))
# What the container's image has: every store, and no server.
IMAGE := redis opensearch delta sql spark debezium views
# Deadlines of tests times this: all workers and their servers may share two slow cores.
export CDC_TEST_TIME_SCALE ?= 3
BIN := .venv/bin
DEPENDENCIES := .venv/headrace-dependencies
INSTALLED := .venv/headrace-installed
COLLECTED := .venv/headrace-collected

# Set by some environments: then each of the processes of a run would compile what another has compiled.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test bench faults release lint format lock wheel clean setup jars

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: setup jars
	@$(BIN)/cdc demo $(if $(KEEP),--keep) $(ARGS)

test: setup jars $(COLLECTED)
	@CDC_TEST_EXAMPLES=$(EXAMPLES_$(TIER)) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	  $(TESTS_$(TIER)) $(ARGS)

bench: setup jars
	@$(BIN)/python -m tests.bench $(ARGS)

faults: setup jars
	@$(BIN)/python -m tests.faults $(ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

setup: $(DEPENDENCIES) $(INSTALLED)

# A stamp is touched last, so an interrupted set-up is done again. pip checks every file against the lock.
$(DEPENDENCIES): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Headrace needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "hint: name one by PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up .venv: about 1 GB, once" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

$(INSTALLED): pyproject.toml $(DEPENDENCIES)
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	@touch $@

# In a new clone each worker would compile the tests, all at once; here two processes share them, once.
$(COLLECTED): $(INSTALLED)
	@$(BIN)/python -m pytest --collect-only -q tests/unit >/dev/null & \
	  $(BIN)/python -m pytest --collect-only -q tests --ignore tests/unit >/dev/null; wait
	@touch $@

# The jars lie in the user's cache folder, outside the checkout; this is quick when they are there.
jars: setup
	@$(BIN)/cdc stack fetch

# The only goal that needs more than pip: uv compiles the lock. No registry's name gets into it.
lock: setup
	@test -x .make/bin/uv || { $(PYTHON) -m venv .make && .make/bin/python -m pip install -q uv; }
	@.make/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -o requirements.txt
	@.make/bin/uv pip compile pyproject.toml $(IMAGE:%=--extra %) --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -c requirements.txt -o compose/image/requirements.txt
	@echo hatchling | .make/bin/uv pip compile - --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -c requirements.txt -o compose/image/build-requirements.txt
	@$(BIN)/python -m tests.lock_jars

# Figures belong to the code that they were taken on: none goes out with figures of another one.
release: setup
	@$(BIN)/python -m tests.faults --none-due
	@$(MAKE) wheel

# Beside it lies the lock of what it needs: the image's, which has no server and no tool of development.
wheel: setup
	@$(BIN)/python -m hatchling build -t wheel
	@cp compose/image/requirements.txt dist/requirements.txt

# Stop a stack that runs in .cdc first: cdc stack down --wipe
clean:
	@rm -rf .venv .make build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
