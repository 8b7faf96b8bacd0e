# What CI calls and what a laptop calls are the same recipes.
BIN := $(CURDIR)/.venv/bin
PACKAGES := sql queue_core bus notifications work_queue history_pipeline pyspark_stickybus stickybus
CHECKED := $(PACKAGES) devtools tests $(wildcard benchmarks examples scripts)
# Images of containers set it. Each of the tests' processes, hundreds, would compile all of our modules anew.
unexport PYTHONDONTWRITEBYTECODE
# More arguments for pytest, such as ARGS="-k sqlite".
ARGS :=
# Tests side by side: most of them wait for a lease, a poll or a process.
WORKERS := 3
# A worker that died is not replaced: when two die in the same second, pytest-xdist 3.8 waits for ever.
PYTEST := $(BIN)/pytest -n $(WORKERS) --max-worker-restart 0

.PHONY: help demo test quick lint types site release bench simulate chaos chaos-tasks soak report servers java lock
.DEFAULT_GOAL := help

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.base ## See the product at work on SQLite (needs Python only)
	@$(BIN)/stickybus demo

test: .venv/.full servers ## Run the whole suite on SQLite, PostgreSQL, MariaDB and, where it is found, MySQL
	@$(BIN)/python -m devtools.servers -- $(PYTEST) $(ARGS)

quick: .venv/.full ## Run what needs no server, no service and no minutes, on SQLite: for a developer's loop
	@$(PYTEST) -m "not slow and not remote and not postgresql and not mariadb and not mysql" \
		--ignore tests/contract/service tests/unit tests/contract tests/simulation $(ARGS)

lint: .venv/.full ## Check style, format and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.full ## Check types, strictly
	$(BIN)/mypy $(CHECKED)

site: .venv/.full ## Build the documentation's site into the folder site, offline; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The date that archives bear is the commit's, so that two builds of it are the same bytes.
release: .venv/.full ## Build wheel and sdist into the folder dist, the same bytes each time
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist

bench: .venv/.full servers ## Measure everything on each database, a fortieth of the sizes (FULL=1: all; SCENARIO=, DATABASE=)
	@$(BIN)/python -m benchmarks $(if $(FULL),,--quick) $(SCENARIO) $(addprefix --database ,$(DATABASE))

simulate: .venv/.full ## Simulate clusters and their faults, 10,000 seeds (SEEDS=n; SEED=k shows one)
	@$(BIN)/python -m tests.simulation

chaos: .venv/.full servers ## Kill, freeze, cut and fill under load, and judge (SCENARIO=, DATABASE=, MODE=, QUICK=1)
	@$(BIN)/python -m tests.chaos run $(if $(QUICK),--quick) $(addprefix --scenario ,$(SCENARIO)) \
		$(addprefix --database ,$(DATABASE)) $(addprefix --mode ,$(MODE)) $(addprefix --output ,$(OUTPUT))

chaos-tasks: .venv/.full servers ## Kill, restart and cut under a work queue (DATABASE=, QUICK=1)
	@$(BIN)/python -m tests.chaos tasks $(if $(QUICK),--quick) $(addprefix --database ,$(DATABASE))

soak: .venv/.full servers ## Run for 30 minutes (MINUTES=n) with one kill a minute; all must stay flat
	@$(BIN)/python -m tests.chaos soak $(addprefix --minutes ,$(MINUTES)) $(addprefix --output ,$(OUTPUT))

report: .venv/.full java ## Post, handle, archive, report on and replay once, on SQLite, into the folder report (FOLDER=)
	@$(BIN)/python examples/audit.py $(or $(FOLDER),report)

servers:
	@scripts/setup.sh servers

java:
	@scripts/setup.sh java

lock: ## Resolve the locked versions anew (needs uv)
	uv pip compile pyproject.toml --all-extras --group build --universal --python-version 3.11 \
		--generate-hashes --no-header --upgrade --quiet --output-file requirements.lock
	uv pip compile pyproject.toml --group build --universal --python-version 3.11 \
		--generate-hashes --no-header --constraint requirements.lock --quiet --output-file requirements-base.lock

.venv/.base: requirements-base.lock pyproject.toml
	@scripts/setup.sh environment requirements-base.lock
	@touch $@

# Holds the base as well, in the same versions.
.venv/.full: requirements.lock pyproject.toml
	@scripts/setup.sh environment requirements.lock
	@touch .venv/.base $@
