# One-word verbs. `make up` runs Topolog on this machine, `make test` runs the tests. Both install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
KERNEL := $(VENV)/.kernel
RELEASE := $(VENV)/release
ARGS ?=
IMAGE ?= topolog:local
CONTAINER_TOOL ?= docker
KUBECTL ?= kubectl

# Topolog and its tests start many processes: without bytecode on disk, each compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install up test coverage mutations test-cluster sim chaos lint types format bench vectors chart docs lock stubs dist site sbom image digests config deploy deploy-pod clean

help:  ## Show the verbs.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(STAMP) $(KERNEL)  ## Create .venv with the development tools from the lock file.

# `make up` needs a quarter of the packages of `make test`. Both print their progress.
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Topolog needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.lock pyproject.toml scripts/runtime_lock.py | $(BIN)/python
	@echo "installing the packages that Topolog needs at run time (once; about 100 MB)"
	@$(BIN)/python scripts/runtime_lock.py . > $(VENV)/runtime.lock
	@$(PIP_INSTALL) --require-hashes -r $(VENV)/runtime.lock
	@sh scripts/link_project.sh $(VENV)
	@touch $(RUNTIME)

$(STAMP): requirements.lock pyproject.toml scripts/runtime_lock.py | $(BIN)/python
	@echo "installing the packages for development (once; about 250 MB)"
	@$(BIN)/python scripts/runtime_lock.py . runtime dev > $(VENV)/dev.lock
	@$(PIP_INSTALL) --quiet --require-hashes -r $(VENV)/dev.lock
	@$(PIP_INSTALL) --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP) $(RUNTIME)

# Without a C compiler this fetches one (ziglang). If that fails, Topolog decides more slowly.
$(KERNEL): $(wildcard services/scheduler/snapshot/compiled/*) scripts/build_kernel.py | $(BIN)/python
	@$(BIN)/python scripts/build_kernel.py --fetch
	@touch $(KERNEL)

up: $(RUNTIME) $(KERNEL)  ## Run Topolog with a simulated cluster: make up ARGS="--nodes 20 --pods 200".
	@$(BIN)/topolog up $(ARGS)

test: install  ## Run the tests: make test ARGS="-k ledger". All of them also tell which branches of shells ran, and hold a floor.
	$(if $(ARGS),,MEASURE_BRANCHES=rooms) $(BIN)/python -m pytest -n 3 $(ARGS)

coverage: install  ## Which branches of each shell's file no test of its own runs.
	MEASURE_BRANCHES=files $(BIN)/python -m pytest -n 3 $(ARGS)

mutations: install  ## Plant known bugs one by one, which the tests must catch: all of them, or make mutations SAMPLE=12 for at most 90 s.
	$(BIN)/python -m tests.mutations $(if $(SAMPLE),--sample $(SAMPLE)) $(ARGS)

test-cluster: install  ## Hold the Kubernetes client, k8s/ and the chart to a real API server: make test-cluster KUBECONFIG=~/.kube/config
	$(if $(KUBECONFIG),,$(error name the server: make test-cluster KUBECONFIG=~/.kube/config))
	TOPOLOG_TEST_KUBECONFIG=$(KUBECONFIG) $(BIN)/python -m pytest tests/kube/test_real.py tests/deploy/test_api_server.py $(ARGS)

sim: install  ## Simulate the whole of Topolog with new seeds for 5 minutes, and keep one that fails: make sim MINUTES=10, or SEEDS=30000..30100.
	$(BIN)/python -m tests.simulation --keep $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

chaos: install  ## Faults on a live workload, and what holds afterwards: make chaos FAULTS=100 (10 to 30 s each).
	$(BIN)/python -m tests.chaos $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)

lint: install  ## Lint, check the format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## Format the code.
	$(BIN)/ruff format .

vectors: install  ## Replay the recorded cases: make vectors ARGS="some/file.json.gz".
	$(BIN)/python -m tests.vectors $(if $(ARGS),$(ARGS),tests/vectors/data)

bench: install  ## Measure: make bench ARGS="road".
	$(BIN)/python -m tests.bench $(ARGS)

stubs: install  ## Generate the podresources messages again.
	sh scripts/generate_stubs.sh

chart: install  ## Make the templates and values of charts/topolog from k8s/ again.
	$(BIN)/python scripts/chart.py

docs: install  ## Make docs/metrics.md, docs/events.md and docs/messages.md again.
	PYTHONPATH=. $(BIN)/python scripts/generate_docs.py
	PYTHONPATH=. $(BIN)/python scripts/messages.py

dist: install  ## Build sdist, wheel and kubectl plugin into dist/: make dist URL=https://HOST/vX.Y.Z (where they will be).
	$(BIN)/python scripts/dist.py dist $(URL)

# The tools of a release, which need none of Topolog's packages, and which nothing else needs.
$(RELEASE)/.installed: requirements.lock pyproject.toml scripts/runtime_lock.py | $(BIN)/python
	@$(PYTHON) -m venv $(RELEASE)
	@$(BIN)/python scripts/runtime_lock.py . release > $(VENV)/release.lock
	@$(RELEASE)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r $(VENV)/release.lock
	@touch $@

site: $(RELEASE)/.installed  ## Build the pages as a site in build/site, which asks no other host.
	@$(RELEASE)/bin/python scripts/site.py build/pages
	@NO_MKDOCS_2_WARNING=1 $(RELEASE)/bin/mkdocs build --strict --quiet --site-dir build/site
	@echo 'python3 -m http.server --bind 127.0.0.1 --directory build/site   # shows it on http://127.0.0.1:8000'

sbom: $(RELEASE)/.installed  ## List the packages of the image in dist/sbom.json (CycloneDX).
	@mkdir -p dist
	@$(BIN)/python scripts/runtime_lock.py . > $(VENV)/runtime.lock
	@$(RELEASE)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.json $(VENV)/runtime.lock
	@echo dist/sbom.json

image:  ## Build the image: make image IMAGE=registry.example.com/topolog:1, with PLATFORMS=linux/amd64,linux/arm64 PUSH=yes for a registry.
	$(CONTAINER_TOOL) build --tag $(IMAGE) $(if $(PLATFORMS),--platform $(PLATFORMS)) $(if $(PUSH),--push) \
		--build-arg VERSION=$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) \
		--build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) .

digests:  ## Ask the registry for the newest digest of the base image, and set it in the Dockerfile.
	@base=$$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile) && \
		digest=$$($(CONTAINER_TOOL) buildx imagetools inspect "$$base" --format '{{.Manifest.Digest}}') && \
		echo "$$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' && \
		sed "s|^ARG BASE=.*|ARG BASE=$$base@$$digest|" Dockerfile > Dockerfile.new && cat Dockerfile.new > Dockerfile && \
		rm Dockerfile.new && grep '^ARG BASE=' Dockerfile

config:  ## Print what make deploy applies (the exporter alone, with its objects).
	@$(KUBECTL) kustomize k8s/overlays/exporter-only

deploy:  ## The exporter alone, for a scheduler that reads NodeResourceTopology objects.
	$(KUBECTL) apply -k k8s/overlays/exporter-only

deploy-pod:  ## A pod that asks for aligned resources.
	$(KUBECTL) apply -f docs/examples/aligned-pod.yaml

lock:  ## Compile requirements.lock again (needs uv).
	uv pip compile pyproject.toml --extra dev --extra release --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --quiet --output-file requirements.lock

clean:  ## Remove what was made here.
	rm -f services/scheduler/snapshot/_kernel.*.so
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
