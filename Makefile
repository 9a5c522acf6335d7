# Everything a newcomer needs: `make demo` shows the product, `make test` proves it.
# Needs python3 (3.11 or newer) with venv and pip. All else is installed into .venv or built into ~/.cache/kubenexus.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS := build/docs-venv
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo install test test-unit test-conformance test-cluster bench-policy bench-http bench-webhook bench-scheduler bench-hardware bench-tenancy bench-steps bench-docs soak cel-conformance faults gang-faults tenancy-faults hostile-tenant parity fuzz-webhook lint wheel docs binaries generate manifests lock clean

help: ## This list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: $(VENV)/run ## Admit and place the quickstart example on an in-memory cluster
	@$(BIN)/kubenexus simulate examples/quickstart

install: $(VENV)/dev ## The product and its development tools in .venv

test: test-unit test-conformance test-cluster ## Every test, on a real control plane

test-unit: $(VENV)/dev ## Tests that need no cluster; minutes
	$(PYTEST) -q -n 2 --junitxml=build/tests/unit.xml tests/unit

test-conformance: $(VENV)/dev ## The CEL conformance suite on both engines
	$(PYTEST) -q --junitxml=build/tests/conformance.xml tests/conformance

test-cluster: $(VENV)/dev binaries ## Tests on a real kube-apiserver, one for each of two workers
	$(PYTEST) -q -n 2 --dist loadfile --no-loadscope-reorder --junitxml=build/tests/cluster.xml tests/cluster

binaries: $(VENV)/dev ## The control plane's binaries: built once, then cached
	@$(BIN)/kubenexus dev build --tool helm --tool helm-3 --tool cert-manager

# Benchmarks print their figures and write them to build/bench/NAME.json (tests/bench/rows.py has the format), raw
# measurements to NAME-raw.json; `make bench-docs` makes the tables and plots of docs/ from these files.

bench-policy: $(VENV)/dev ## What evaluating policies costs, against the bare engine
	$(BIN)/python -m tests.bench.bench_policy

bench-http: $(VENV)/dev ## What finding the end of a request costs, against httptools
	$(BIN)/python -m tests.bench.bench_http

bench-docs: $(VENV)/dev ## The tables of docs/ from the benchmarks that were run
	$(BIN)/python -m tests.bench.tables

bench-webhook: $(VENV)/dev binaries ## What admission costs a cluster, beside ValidatingAdmissionPolicy (needs wrk)
	$(BIN)/python -m tests.bench.bench_webhook

bench-scheduler: $(VENV)/dev binaries ## Gangs and pods beside kube-scheduler, stock and native gang (hours; ARGS=--quick for minutes)
	$(BIN)/python -m tests.bench.bench_scheduler $(ARGS)

bench-hardware: $(VENV)/dev ## What NUMA, GPUs and fabric cost planning, and a GPU cluster's trace replayed (ARGS="--trace DIR")
	$(BIN)/python -m tests.bench.bench_hardware $(ARGS)

bench-steps: $(VENV)/dev ## The longest steps of the scheduler's event loop, up to 10,000 nodes (ARGS=--quick for 1,000)
	$(BIN)/python -m tests.bench.bench_steps $(ARGS)

soak: $(VENV)/dev ## Two days of churn in virtual time: heap, containers and steps stay flat (ARGS="--hours N")
	$(BIN)/python -m tests.bench.soak $(ARGS)

bench-tenancy: $(VENV)/dev ## Three tenants on a recorded GPU cluster in virtual time, beside FIFO and greedy (ARGS="--trace DIR")
	$(BIN)/python -m tests.bench.bench_tenancy $(ARGS)

cel-conformance: $(VENV)/dev ## The CEL conformance table of docs/cel.md
	$(BIN)/python -m tests.conformance.cel_spec --write build/bench/cel-conformance.json
	$(BIN)/python -m tests.conformance.cel_table build/bench/cel-conformance.json docs/cel.md

faults: $(VENV)/dev binaries ## Every fault of docs/reliability.md three times, and its tables
	KUBENEXUS_FAULT_ROUNDS=3 $(PYTEST) -q tests/cluster/test_faults.py
	$(BIN)/python -m tests.cluster.reliability build/reliability docs/reliability.md

gang-faults: $(VENV)/dev binaries ## The scheduler's faults of docs/reliability.md, many times each
	KUBENEXUS_GANG_FAULTS=1 $(PYTEST) -q tests/cluster/test_gang_truth.py
	$(BIN)/python -m tests.cluster.reliability build/reliability docs/reliability.md

tenancy-faults: $(VENV)/dev binaries ## Preemption and reservations under faults, many times each, and their table in docs/reliability.md
	rm -f build/reliability/tenancy.json
	KUBENEXUS_TENANCY_FAULTS=1 $(PYTEST) -q tests/cluster/test_tenancy_faults.py
	$(BIN)/python -m tests.cluster.reliability build/reliability docs/reliability.md tenancy

hostile-tenant: $(VENV)/dev binaries ## Generated objects of a hostile tenant beside another tenant (OBJECTS=n, SEED=n), and their table in docs/reliability.md
	$(BIN)/python -m tests.hostile.run --objects $(or $(OBJECTS),20000) --seed $(or $(SEED),20) $(ARGS)
	$(BIN)/python -m tests.cluster.reliability build/hostile docs/reliability.md hostile

parity: $(VENV)/dev binaries ## Many drawn cases beside the real kube-scheduler (CASES=n, BASE=seed)
	KUBENEXUS_PARITY_CASES=$(or $(CASES),20000) KUBENEXUS_PARITY_BASE=$(or $(BASE),z) \
		$(PYTEST) -q -s tests/cluster/test_parity.py

fuzz-webhook: $(VENV)/dev ## A million mutated reviews (COUNT=n for another number)
	$(BIN)/python -m tests.fuzz.webhook --count $(or $(COUNT),1000000)

lint: $(VENV)/dev ## Style, types and arrows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(VENV)/dev ## Build the wheel, install it elsewhere, run the unit tests against it
	tests/wheel.sh

docs: $(DOCS)/ready ## The documentation as a site in build/site; a link to nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

generate: $(VENV)/dev ## Write the files that are made from code: schemas, CRDs, parts of the chart, protobuf messages
	@$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. policies/cel/proto/checked_expr.proto
	@$(BIN)/python -m kubenexus.generate
	@$(BIN)/python -m kubenexus.install.chart
	@$(BIN)/python -m tests.architecture

manifests: $(VENV)/dev binaries ## Render deploy/*.yaml from the chart
	@$(BIN)/python -m kubenexus.install.render_manifests "$$($(BIN)/kubenexus dev build --tool helm | sed -n 's/^helm .* is ready in //p')/helm"

lock: ## Compile requirements/*.txt anew from pyproject.toml (needs uv); what runs is what is tested
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header pyproject.toml --group dev -o requirements/dev.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header pyproject.toml -c requirements/dev.txt -o requirements/run.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header --group build -c requirements/dev.txt -o requirements/build.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header --group docs -c requirements/dev.txt -o requirements/docs.txt

clean: ## Remove what was installed and built here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Two stamps, so that the demo does not wait for development tools.
$(VENV)/run: requirements/run.txt requirements/build.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the product into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/run.txt -r requirements/build.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: $(VENV)/run requirements/dev.txt
	@echo "installing the development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

# The site's tools have a place of their own: nothing that is tested stands beside them.
$(DOCS)/ready: requirements/docs.txt
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --require-hashes -r requirements/docs.txt
	@touch $@
