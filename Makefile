# Lockstep's commands. `make help` lists them; Python 3.11+ and make are all a newcomer has.
# Pip always checks hashes (requirements/*.txt); stamps in .venv make a second run cheap.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DATA_DIR ?= data
LISTEN ?= localhost:9092
KILLS ?= 200
FRAMES ?= 100000
INPUTS ?= 1000000
SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help setup serve test check bench-quick system-deps kill group-stress malformed disk-full fuzz

help: ## List every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## Make .venv with all that tests, benchmarks and compatibility cases need

serve: $(VENV)/.runtime ## Run a broker on localhost:9092 (LISTEN=) with its data in ./data (DATA_DIR=)
	@exec $(BIN)/lockstep serve --data-dir "$(DATA_DIR)" --listen "$(LISTEN)"

test: setup check ## Run the checks and every test (the real-client cases included), at most 10 minutes
	$(BIN)/python -m pytest -n 4 --dist loadscope tests compat_tests

check: $(VENV)/.dev ## Lint, formatting, strict types, import contracts, tidy rules (under 10 s warm)
	@failed=; say() { echo "check: $$1 failed" >&2; failed=1; }; \
	$(BIN)/ruff check --quiet . || say lint; \
	$(BIN)/ruff format --check --quiet . || say formatting; \
	$(BIN)/mypy --no-error-summary || say types; \
	contracts=$$($(BIN)/lint-imports 2>&1) || { echo "$$contracts"; say imports; }; \
	$(BIN)/python -m tests.tidy || say tidiness; \
	test -z "$$failed"

bench-quick: setup ## Lockstep against Apache Kafka in one run, at most 5 minutes
	$(BIN)/python -m bench quick --vs kafka

system-deps: ## Install what pip cannot: kcat, and Java 17, Maven, Node.js and Go when absent (needs root)
	@sh requirements/system_deps.sh

kill: setup ## Campaign: KILLS=200 times kill -9 under real clients, nothing acknowledged may be missing
	$(BIN)/python -m tests.campaigns.kill9 --kills $(KILLS) --resume

group-stress: setup ## Campaign: SECONDS=600 of 50 group members dying, pausing, joining, the broker killed as well
	$(BIN)/python -m tests.campaigns.groups --seconds $(SECONDS) --resume

malformed: setup ## Campaign: FRAMES=100000 malformed frames against a running broker
	$(BIN)/python -m tests.campaigns.malformed --frames $(FRAMES)

fuzz: setup ## Campaign: INPUTS=1000000 fuzzed inputs to codecs, records and handlers, by grammar and coverage
	$(BIN)/python -m tests.campaigns.fuzz --inputs $(INPUTS) --resume

disk-full: setup ## Campaign: fill a small file system under the broker, then free it (needs root)
	$(BIN)/python -m tests.campaigns.disk_full

# --- what the targets above stand on -------------------------------------------------------------

# A virtual environment whose interpreter is gone (moved clone, upgraded Python) is made again.
$(BIN)/python:
	@sh requirements/make_venv.sh $(VENV)

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/python
	@echo "Installing the broker and what it needs into $(VENV) ..."
	@$(PIP) install --require-hashes --requirement requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@echo "Installing what tests and benchmarks need into $(VENV) ..."
	@$(PIP) install --require-hashes --requirement requirements/dev.txt
	@touch $@
