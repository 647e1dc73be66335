# Lockstep's commands. `make help` lists them; Python 3.11+ and make are all a newcomer has.
# Pip always checks hashes (requirements/*.txt); stamps in .venv make a second run cheap.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DATA_DIR ?= data
LISTEN ?= localhost:9092
PROCESSES ?= 1
CONFIG ?=
KILLS ?= 200
NODES ?= 1
SCOPE ?= all
FRAMES ?= 100000
INPUTS ?= 1000000
COUNT ?= 10000
SECONDS ?= 600
SEEDS ?= 1000
RUNS ?= 100
RECORDS ?= 100000
BOUNDS ?= day
HISTORIES ?= 1000
TRANSACTIONS ?= 1000000
PLAYED ?= 1000000
COMPARED := $(addsuffix -lockstep-vs-kafka,headline nodes3 transactions atomic secured)
PAGE_KINDS := $(COMPARED) contention feed logstore spark player profile
# A file of settings has its own directory and listener, unless they are named beside it.
option = $(if $(and $(CONFIG),$(filter file,$(origin $(2)))),, $(1) "$($(2))")
newest = $(lastword $(sort $(wildcard bench/results/*-$(1).json)))
ALL_TESTS := $(BIN)/python -m pytest -n 4 --dist loadscope --reruns 1 --max-suite-reruns 30 --rerun-show-tracebacks tests compat_tests

.DEFAULT_GOAL := help
.PHONY: help setup serve extension native cluster test test-quick test-rest test-all compiled check coverage bench bench-page bench-quick profile system-deps kill power group-stress malformed damage disk-full churn fuzz soak model torture exactly-once streams linearizable smoke player

help: ## List every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev $(VENV)/.extension ## Make .venv with all that tests, benchmarks and compatibility cases need

serve: $(VENV)/.runtime $(VENV)/.extension ## Run a broker on localhost:9092 (LISTEN=) with its data in ./data (DATA_DIR=), PROCESSES=1, settings from a file (CONFIG=)
	@exec $(BIN)/lockstep serve$(if $(CONFIG), --config "$(CONFIG)")$(call option,--data-dir,DATA_DIR)$(call option,--listen,LISTEN) --processes "$(PROCESSES)"

extension: $(VENV)/.runtime ## Build the C extension of the Produce path, or fail; LOCKSTEP_PURE=1 does not use it
	@$(BIN)/python requirements/build_extension.py --required

native: setup ## Compile the hot paths' modules with mypyc into .native; LOCKSTEP_NATIVE=1 uses them (needs a C compiler)
	$(BIN)/python requirements/build_native.py

cluster: $(VENV)/.runtime $(VENV)/.extension ## Run three brokers on localhost:9092 to 9094 (LISTEN=), 20,000 above each other's, data in ./data/1 to 3 (DATA_DIR=), settings of all from a file (CONFIG=)
	@exec $(BIN)/python requirements/run_cluster.py$(if $(CONFIG), --config "$(CONFIG)") --data-dir "$(DATA_DIR)" --listen "$(LISTEN)"

# Every process that a test starts would compile the product anew, every test process all tests.
test test-rest test-all test-quick compiled: export PYTHONDONTWRITEBYTECODE =

test: setup ## Run the checks and the tests of every property, newest clients included: some 20 minutes on two cores
	@$(MAKE) --no-print-directory --jobs 2 check compiled
	$(ALL_TESTS) -m "tier(name='quick') or tier(name='test')"

test-quick: setup ## Tests of protocol, storage and broker in Python alone, at most 3 minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist loadscope -m "tier(name='quick')" tests/protocol tests/storage tests/broker

test-rest: setup ## What CI runs besides: Apache Kafka by its own client, older clients, Spark, campaigns in short
	$(ALL_TESTS) -m "tier(name='rest')"

test-all: setup ## Both in one run, with every client on Apache Kafka and an older Spark too: before a release
	@$(MAKE) --no-print-directory --jobs 2 check compiled
	$(ALL_TESTS)

compiled: $(VENV)/.dev ## Collect every test once: their modules are compiled before four processes would all do it
	@$(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider tests compat_tests >/dev/null 2>&1 || true

check: $(VENV)/.dev ## Lint, formatting, strict types, import contracts, tidy and vocabulary rules (under 10 s warm)
	@failed=; say() { echo "check: $$1 failed" >&2; failed=1; }; \
	$(BIN)/ruff check --quiet . || say lint; \
	$(BIN)/ruff format --check --quiet . || say formatting; \
	$(BIN)/mypy --no-error-summary || say types; \
	contracts=$$($(BIN)/lint-imports 2>&1) || { echo "$$contracts"; say imports; }; \
	$(BIN)/python -m tests.tidy || say tidiness; \
	$(BIN)/python -m tests.vocabulary || say vocabulary; \
	test -z "$$failed"

coverage: $(VENV)/.dev ## Branches of each pure module from its own mirror test: all, but for tests/coverage.py's SHORT_OF (under a minute)
	$(BIN)/python -m tests.coverage --quiet

bench: setup ## The headline: Lockstep against Apache Kafka on one node and three, with intervals, at most 40 minutes
	$(BIN)/python -m bench headline

bench-page: setup ## docs/benchmarks.md, docs/benchmarks/ and their pictures from the newest kept results
	$(BIN)/python -m bench.page --directory docs $(foreach kind,$(PAGE_KINDS),$(call newest,$(kind))) bench/results/growth $(wildcard bench/results/micro/history.jsonl) bench/results/full

bench-quick: setup ## Lockstep against Apache Kafka in one run, at most 5 minutes
	$(BIN)/python -m bench quick --vs kafka

profile: setup ## Where the time of a group commit goes, by stage, on one node and three; flame graphs in data/
	$(BIN)/python -m bench profile --flame data/profile.svg

system-deps: ## Install what pip cannot: kcat, fuse3, PostgreSQL, and Java 17, Maven, Node.js, Go and Rust when absent (needs root)
	@sh requirements/system_deps.sh

kill: setup ## Campaign: KILLS=200 times kill -9 under real clients, nothing acknowledged may be missing
	$(BIN)/python -m tests.campaigns.kill9 --kills $(KILLS) --resume

power: setup ## Campaign: RUNS=100 times the power goes, what was not flushed is lost (NODES=3 SCOPE=one; FUSE)
	$(BIN)/python -m tests.power --control --nodes $(NODES)
	$(BIN)/python -m tests.power --runs $(RUNS) --nodes $(NODES) --scope $(SCOPE) --resume

group-stress: setup ## Campaign: SECONDS=600 of 50 group members dying, pausing, joining, the broker killed as well
	$(BIN)/python -m tests.campaigns.groups --seconds $(SECONDS) --resume

malformed: setup ## Campaign: FRAMES=100000 malformed frames against a running broker
	$(BIN)/python -m tests.campaigns.malformed --frames $(FRAMES)

churn: setup ## Campaign: COUNT=10000 connections, sessions, groups, producers, ids and topics that come and go
	$(BIN)/python -m tests.campaigns.churn --count $(COUNT) --resume

fuzz: setup ## Campaign: INPUTS=1000000 fuzzed inputs to codecs, records and handlers, by grammar and coverage
	$(BIN)/python -m tests.campaigns.fuzz --inputs $(INPUTS) --resume

soak: setup ## Campaign: SEEDS=1000 fresh simulated clusters under faults, nothing acknowledged may be missing
	$(BIN)/python -m tests.sim.soak --seeds $(SEEDS)

torture: setup ## Campaign: RUNS=100 clusters of three, real clients, a fault every 10 s for a minute (needs root)
	$(BIN)/python -m tests.torture --runs $(RUNS) --transactions --resume

exactly-once: setup ## Campaign: RECORDS=100000 read, transformed, written in transactions, 50 times kill -9 (NODES=3)
	$(BIN)/python -m tests.campaigns.exactly_once --records $(RECORDS) --nodes $(NODES) --resume

streams: setup ## Campaign: Kafka Streams counts words exactly once under 10 times kill -9 (NODES=3)
	$(BIN)/python -m tests.campaigns.streams --nodes $(NODES) --resume

linearizable: setup ## Campaign: HISTORIES=1000 of conditional appends under kills and leader changes, judged by porcupine (needs Go)
	$(BIN)/python -m tests.campaigns.linearizable --control
	$(BIN)/python -m tests.campaigns.linearizable --histories $(HISTORIES) --resume

smoke: setup ## Campaign: TRANSACTIONS=1000000 under locks, three brokers killed at random, equal checksums everywhere
	$(BIN)/python -m tests.campaigns.smoke --transactions $(TRANSACTIONS) --resume

player: setup ## Campaign: PLAYED=1000000 records to eight databases; players, targets, brokers killed and stopped
	$(BIN)/python -m tests.campaigns.player --records $(PLAYED) --resume

model: setup ## Campaign: TLC over the models, their planted mistakes and traces, 15 minutes (BOUNDS=night)
	$(BIN)/python -m tests.model.check --bounds $(BOUNDS) --record

damage: setup ## Campaign: damage each file of a stopped node in each way, NODES=1 or 3, resumed (NODES=1)
	$(BIN)/python -m tests.campaigns.damage --nodes $(NODES) --resume
disk-full: setup ## Campaign: fill a small file system under the broker, then free it (needs root)
	$(BIN)/python -m tests.campaigns.disk_full

# --- what the targets above stand on -------------------------------------------------------------

# Tried again only when one of these is newer: without a C compiler all runs as Python.
$(VENV)/.extension: broker/produce/fast_path.c requirements/build_extension.py | $(VENV)/.runtime
	@$(BIN)/python requirements/build_extension.py
	@touch $@

# A virtual environment whose interpreter is gone (moved clone, upgraded Python) is made again.
$(BIN)/python:
	@sh requirements/make_venv.sh $(VENV)

# A `pip install .` puts a copy in place of the editable install, an interrupted one leaves no command: both again.
INSTALLED := $(and $(wildcard $(BIN)/lockstep),$(wildcard $(VENV)/lib/python*/site-packages/_lockstep_broker.pth))
.PHONY: not-installed

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml $(if $(INSTALLED),,not-installed) | $(BIN)/python
	@echo "Installing the broker and what it needs into $(VENV) ..."
	@$(PIP) install --require-hashes --requirement requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@echo "Installing what tests and benchmarks need into $(VENV) ..."
	@$(PIP) install --require-hashes --requirement requirements/dev.txt
	@touch $@
