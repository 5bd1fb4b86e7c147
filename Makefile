# Every command a person or CI needs. `make` alone lists them.

PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
ARGS ?=
# Processes that share the tests, each with servers and a Spark of its own; WORKERS=0 runs them in one, in order. One
# more than cores: a third of a test's time is waiting for servers and processes that begin.
WORKERS ?= 3

# Whole files are handed out, the longest first (tests/conftest.py): each process has servers and a Spark of its own.
# A process that died is not begun again: what it had not run yet would be waited for without end.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=15
# The timeout of a test is an exception in it; what does not even listen to that ends with its process, by name.
BOUNDED := -o faulthandler_timeout=1500 -o faulthandler_exit_on_timeout=true

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##### Use it

.PHONY: setup
setup: ## Make this clone ready to run: packages, Java, Delta jars
	@$(PYTHON) tools/setup.py

.PHONY: demo
demo: setup ## Copy a live PostgreSQL into Delta tables and prove it (ARGS="--seconds 60 --keep")
	@$(BIN)/headrace demo $(ARGS)

.PHONY: demo-mariadb
demo-mariadb: setup ## The same from a live MariaDB, which has to be installed
	@$(BIN)/headrace demo --source mariadb $(ARGS)

.PHONY: demo-mysql
demo-mysql: setup-tests ## The same from a live MySQL, which the set-up of the tests unpacks
	@$(BIN)/headrace demo --source mysql $(ARGS)

##### Test it

.PHONY: setup-tests
setup-tests: ## As setup, and the servers of the tests: Debian's PostgreSQL 15 and MariaDB, MySQL, an object store (needs Go)
	@$(PYTHON) tools/setup.py --tests

.PHONY: test
test: setup-tests ## Run the tests (ARGS="tests/fold -k truncate"; WORKERS=0 in one process)
	@$(PYTEST) $(BOUNDED) -n $(WORKERS) $(ARGS)

.PHONY: test-long
test-long: setup-tests ## Run the tests with the long ones: thousands of histories, crashes everywhere
	@JDK_JAVA_OPTIONS=" " $(PYTEST) -n $(WORKERS) --long $(ARGS) # Java compiles well what runs for hours

.PHONY: test-matrix
test-matrix: setup-tests ## Run the tests of the sources on PostgreSQL 15, 16 and 18 and on MariaDB 11 in turn
	@for version in 15 16 18; do echo "PostgreSQL $$version"; HEADRACE_POSTGRES=$$version \
		$(PYTEST) -n $(WORKERS) tests/sources/postgres tests/integration -m "not spark" $(ARGS) || exit 1; done
	@if why=$$($(BIN)/python tools/unpack_mariadb.py); then echo "MariaDB 11"; HEADRACE_MARIADB=11 \
		$(PYTEST) -n $(WORKERS) tests/sources/mysql tests/integration -m "mariadb and not spark" $(ARGS); \
		else echo "no MariaDB 11: $$why"; fi

.PHONY: asan
asan: setup-tests ## Run the tests of the C decoders with an address sanitiser
	@$(BIN)/python tools/asan.py $(ARGS)

##### Measure it (ARGS="--help" explains, ARGS="--quick" tries)

.PHONY: bench-freshness
bench-freshness: setup ## Measure source commit to visible in the Delta table
	@$(BIN)/python -m benchmarks.bench_freshness $(ARGS)

.PHONY: bench-capture
bench-capture: setup ## Measure capture beside pg_recvlogical and Debezium
	@$(BIN)/python -m benchmarks.bench_capture $(ARGS)

.PHONY: bench-sender
bench-sender: setup ## Measure what the server does while capture reads by a Unix socket
	@$(BIN)/python -m benchmarks.bench_sender $(ARGS)

.PHONY: bench-mysql
bench-mysql: setup-tests ## Measure binary logs and tables of MySQL and MariaDB beside four other readers
	@$(BIN)/python -m benchmarks.bench_mysql $(ARGS)

.PHONY: bench-chunks
bench-chunks: setup ## Measure dumps beside ADBC and Debezium's snapshots
	@$(BIN)/python -m benchmarks.bench_chunks $(ARGS)

.PHONY: bench-memory
bench-memory: setup ## Measure what a capture holds in memory at worst
	@$(BIN)/python -m benchmarks.bench_memory $(ARGS)

.PHONY: bench-apply
bench-apply: setup ## Measure batches into a large Delta table beside Spark's MERGE
	@$(BIN)/python -m benchmarks.bench_apply $(ARGS)

.PHONY: bench-apply-memory
bench-apply-memory: setup ## Measure what batches hold in memory, by their size
	@$(BIN)/python -m benchmarks.bench_apply_memory $(ARGS)

.PHONY: bench-growth
bench-growth: setup ## Measure batches into Delta tables of 2 to 100 million rows
	@$(BIN)/python -m benchmarks.bench_growth $(ARGS)

.PHONY: bench-relay
bench-relay: setup ## Measure from commit to callback, and what many consumers cost
	@$(BIN)/python -m benchmarks.bench_relay $(ARGS)

.PHONY: bench-beside
bench-beside: setup ## Measure what a capture loses beside consumers
	@$(BIN)/python -m benchmarks.bench_beside $(ARGS)

.PHONY: bench-fanout
bench-fanout: setup ## Measure what a relay sends beside Arrow Flight
	@$(BIN)/python -m benchmarks.bench_fanout $(ARGS)

.PHONY: bench-backlog
bench-backlog: setup ## Measure how fast a waiting change log gets into Delta tables
	@$(BIN)/python -m benchmarks.bench_backlog $(ARGS)

.PHONY: bench-chain
bench-chain: setup ## Measure the whole way from PostgreSQL to Delta tables
	@$(BIN)/python -m benchmarks.bench_chain $(ARGS)

.PHONY: bench-day
bench-day: setup ## Measure a day of batches, with maintenance and without
	@$(BIN)/python -m benchmarks.bench_day $(ARGS)

.PHONY: bench-control
bench-control: setup ## Measure a control plane with many replicators
	@$(BIN)/python -m benchmarks.bench_control $(ARGS)

.PHONY: bench-docs
bench-docs: setup ## Write docs/benchmarks.md and its plots from the kept results
	@$(BIN)/python -m benchmarks.page $(ARGS)

##### Read it

.PHONY: docs
docs: setup ## Build the pages, and the API's from its description, as a site in build/docs
	@$(BIN)/python -m tools.build_docs $(ARGS)

##### Check it

.PHONY: lint
lint: setup ## Style of the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: format
format: setup ## Bring the code into the style, as far as a tool can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: setup ## Types of the code
	@$(BIN)/mypy

.PHONY: layers
layers: setup ## Which package may import which
	@$(BIN)/lint-imports

.PHONY: requirements
requirements: setup ## Whether docs/requirements.md and the tests agree (ARGS=--write fills it in)
	@$(BIN)/python tools/check_requirements.py $(ARGS)

.PHONY: tap-data
tap-data: setup ## Write the tap's schemas and recorded scenes anew
	@$(BIN)/python -m tools.write_tap_data

.PHONY: spelling
spelling: setup ## Spelling of code and documents
	@$(BIN)/codespell

.PHONY: check
check: lint types layers requirements spelling ## All of the checks above

##### Keep it

.PHONY: lock
lock: ## Resolve pyproject.toml into requirements.lock anew
	@$(PYTHON) tools/setup.py --lock

.PHONY: clean
clean: ## Remove the environment and what tools left behind
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
