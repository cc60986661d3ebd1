# `make run` and `make test` need Python 3.10 to 3.13 and make; the first of them sets up .venv.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2
# Tests wait for their jobs now and then; four of them at a time have two cores busy for 88 % of the
# time (docs/testing.md).
WORKERS ?= 4

# A name on the path need not work (version managers leave stubs), so each is tried.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.10 python3 python; do \
	$$name -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	2>/dev/null && { echo $$name; break; }; done)

# Errors alone: of indexes, new versions of pip and who installs nothing is to be known here.
INSTALL := $(BIN)/python -m pip install -qq --constraint constraints.txt

.PHONY: help run emulated quick test test-long coverage gpu corpus corpus-check corpus-accept calibrate image lint \
	types format pictures benchmarks environment clean

help:  ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

# Those of which gloo shows nothing run on the emulated device.
run: $(READY)  ## Run every scenario with its control, and judge the verdicts
	$(BIN)/hanglab run --jobs $(JOBS) --backend gloo,nccl-emulated --first-backend

emulated: $(READY)  ## Run every scenario that can run on the emulated NCCL device
	$(BIN)/hanglab run --jobs $(JOBS) --backend nccl-emulated

quick: $(READY)  ## Run a sample of each category in less than a minute
	$(BIN)/hanglab run --quick --jobs $(JOBS)

# What pytest makes of the tests is kept, whatever the shell says: workers begin seconds sooner.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(READY)  ## Run the tests; with TEST_OPTIONS="-m 'not long'" the slow ones, too (WORKERS=4)
	$(BIN)/python -m pytest -n $(WORKERS) $(TEST_OPTIONS)

test-long: $(READY)  ## Run the tests that neither `make test` nor .ci/run does
	$(BIN)/python -m pytest -m long

coverage: export PYTHONDONTWRITEBYTECODE :=
coverage: $(READY)  ## Measure what the tests reach, by room (WORKERS=4 TEST_OPTIONS="...")
	rm -rf artifacts/coverage
	mkdir -p artifacts/coverage
	-$(BIN)/coverage run -m pytest -m "not long" -n $(WORKERS) --timeout 600 $(TEST_OPTIONS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o artifacts/coverage/report.json
	$(BIN)/python -m tools.room_coverage artifacts/coverage/report.json

gpu: $(READY)  ## Run every scenario on NCCL, the tests of its dumps, and behaviours (GPU_OPTIONS="...")
	mkdir -p artifacts
	-HANGLAB_BEHAVIOURS_ON=nccl $(BIN)/python -m pytest tests/nccl_emulated
	[ ! -e artifacts/nccl-behaviours.json ] || \
		$(BIN)/python -m tools.nccl_behaviours artifacts/nccl-behaviours.json
	$(BIN)/python -m pytest scenarios tests/nccl --hanglab --hanglab-backend nccl -n auto \
		--hanglab-artifacts artifacts --junitxml artifacts/junit.xml $(GPU_OPTIONS)

# Checked and accepted is the one in the repository, or CORPUS=artifacts/corpus.
CORPUS ?= tests/corpus
corpus: $(READY)  ## Collect a larger corpus in artifacts/corpus, from runs of every scenario
	rm -rf artifacts/corpus
	for launcher in local torchrun; do \
		$(BIN)/hanglab run --jobs $(JOBS) --launcher $$launcher; \
		$(BIN)/python -m tools.corpus --corpus artifacts/corpus runs runs/latest || exit 1; \
	done
	$(BIN)/python -m tools.corpus --corpus artifacts/corpus trials --seeds 2000
	$(BIN)/python -m tools.corpus --corpus artifacts/corpus damaged --seeds 1000
	$(BIN)/python -m tools.corpus --corpus artifacts/corpus check --accept

corpus-check: $(READY)  ## Compare the verdicts on the corpus with those accepted
	$(BIN)/python -m tools.corpus --corpus $(CORPUS) check

corpus-accept: $(READY)  ## Accept the verdicts on the corpus, and list what changes
	$(BIN)/python -m tools.corpus --corpus $(CORPUS) check --accept

calibrate: $(READY)  ## Fit the probabilities of findings; then accept the corpus anew
	$(BIN)/python -m tools.calibration --jobs $(JOBS) --diagram docs/calibration.svg

# Settings: IMAGE, BASE_IMAGE, WHEELS (a folder), CA_BUNDLE (a file), EXTRAS, PIP_INDEX_URL and more;
# docs/containers.md says what each is for.
WHEELS ?= $(wildcard $(PIP_FIND_LINKS))
CA_BUNDLE ?= $(or $(PIP_CERT),$(SSL_CERT_FILE))
image: export WHEELS := $(WHEELS)
image: export CA_BUNDLE := $(CA_BUNDLE)
image:  ## Build the container image hanglab:latest (BASE_IMAGE=... WHEELS=... CA_BUNDLE=...)
	bash tools/image/build.sh

lint: $(READY)  ## Check style and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vulture
	$(BIN)/lint-imports --no-cache

types: $(READY)  ## Check types
	$(BIN)/mypy -p hanglab.analyzer -p hanglab.harness -p hanglab.recorder -p hanglab.scenarios \
		-p tools.corpus -p tools.calibration

format: $(READY)  ## Put the code into its format
	$(BIN)/ruff check --fix-only --select I .
	$(BIN)/ruff format .

pictures: $(READY)  ## Draw the pictures of the README, a page and a terminal; needs chromium
	$(BIN)/python -m tools.page_picture docs/report.png
	$(BIN)/python -m tools.picture docs/verdict.svg

benchmarks: $(READY)  ## Measure the figures of the documentation
	for benchmark in benchmarks/*.py; do $(BIN)/python $$benchmark || exit 1; done

environment: $(READY)  ## Create .venv from the pinned versions

$(READY): pyproject.toml constraints.txt recorder/rank/native/writer.c tools/native.py
	@test -n "$(PYTHON)" || { \
	echo "No Python 3.10 to 3.13 was found; install one, or say make PYTHON=/path/to/python"; \
	exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV), which takes some minutes."
	@$(INSTALL) hatchling
	@$(INSTALL) --no-build-isolation --editable '.[run,docker,kubernetes,report,trace,tables,frameworks,mcp,mutate,opentelemetry,scale,dev]'
	@$(INSTALL) --no-deps HolisticTraceAnalysis
	@# As an installation from a wheel does: a shell may forbid Python to keep it later.
	@$(BIN)/python -m compileall -q analyzer harness recorder scenarios
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -qq > /dev/null || true
	@touch $@

clean:  ## Remove what was made, .venv too
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
