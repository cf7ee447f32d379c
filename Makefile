# The commands of the README. Each installs what it needs or says in one line what is missing.
#
#   make demo     server, publisher, lossy link and viewers in one process, with a live table
#   make test     builds everything and runs every test (a few minutes)
#   make e2e      a real Chromium plays through a lossy link: needs Node, Chromium, ffmpeg
#   make e2e-tracks  Chromium while a stream's tracks change: sound ahead, camera off, other encoders; CAMERA_OFF=60
#   make e2e-cohorts  Chromium behind a link that loses as calls do, a minute under each recovery scheme, ten times: who
#                 freezes, and what it costs (35 minutes); RUNS=2 SECONDS=30 LOSS=calls:rate=12% BUFFER=800 (ms), and
#                 MENDCAST=FILE for a binary that is there already
#   make interop  drives real clients against the real server; QUICK=1 for the short set
#   make bench    compares CPU and memory with other stacks side by side; QUICK=1 for a look
#   make bench-edge  what a live viewer costs, beside quinn and nginx; QUICK=1 for a look
#   make soak     200 viewers come and go behind a lossy link, alone and beside hostile neighbours, and have to keep
#                 what they have, for half an hour; SOAK="--minutes 2" for a smoke test
#   make fuzz     runs the random tests for longer (CASES=20000): frames, schedules, paths; fuzz/ has more
#   make lab      runs every experiment of the testbed into out/, those on loss recovery with RUNS=100 runs
#                 a point (two hours of CPU time), and writes docs/results.md; then SESSIONS=2000 viewers under
#                 every scheme (an hour), and writes docs/viewers.md, viewers who come back (docs/first-frame.md), and days
#                 of DAY=4000 viewers in user groups (four hours of CPU time: docs/autoplex-figures.md)
#   make autoplex builds the program that decides what user groups may send (mendcast autoplex decide), beside the
#                 release build of mendcast; it brings a query engine: some minutes the first time
#   make test-autoplex  tests it: the same decision by DataFusion and by our own code, and on Spark and ClickHouse where
#                 they are installed; and edges that learn from each other's viewers, in four minutes
#   make web      puts the dashboard and the player page, which the server embeds, into web/dist
#   make conformance  holds what the RFCs ask of a server against tests and sources; LIST=9000 prints all of it
#   make h3spec   runs the cases of h3spec and writes their tables into docs/conformance.md
#   make lint     formatting, clippy, documentation, conformance, structure and language, with warnings as errors
#   make lint-autoplex  the part for autoplex/ alone, with its query engine: some minutes the first time

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test e2e e2e-tracks e2e-cohorts interop bench bench-edge soak fuzz lab autoplex test-autoplex web conformance h3spec lint lint-autoplex need-cargo need-cc pages

need-cargo:
	@command -v $(CARGO) >/dev/null || { echo "missing: Rust with cargo 1.90 or newer (https://rustup.rs)"; exit 1; }

# aws-lc-sys builds C sources.
need-cc:
	@command -v cc >/dev/null && command -v cmake >/dev/null || { \
	  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	    { apt-get update -q && apt-get install -yq --no-install-recommends gcc g++ make cmake; } >/dev/null; } || { \
	  echo "missing: a C compiler and cmake (Debian: apt-get install gcc g++ cmake)"; exit 1; }

demo: need-cargo need-cc pages
	@echo "building the demo: one to four minutes the first time"
	$(CARGO) build --profile demo --locked --bin mendcast --no-default-features --features edge,tools
	$(TARGET)/demo/mendcast demo $(DEMO)

# The pages are worth having, and nothing depends on them.
pages:
	@if ! command -v npm >/dev/null; then \
	  echo "no Node: the dashboard and the player page will say that they are missing (Debian: apt-get install npm)"; \
	elif ! $(MAKE) --no-print-directory web; then \
	  echo "the pages could not be made: they will say that they are missing"; fi

test: need-cargo need-cc
	$(CARGO) test --workspace --locked

e2e: need-cargo need-cc web
	$(CARGO) build --locked --bin mendcast
	cd web && MENDCAST=$(abspath $(TARGET))/debug/mendcast node --test test/edge.test.mjs test/parts.test.mjs

e2e-tracks: need-cargo need-cc web
	$(CARGO) build --locked --bin mendcast
	cd web && MENDCAST=$(abspath $(TARGET))/debug/mendcast node --test test/tracks.test.mjs

# `make lab` has another RUNS: only what is asked for counts here. The priority keeps the machine useful for others.
e2e-cohorts: $(if $(MENDCAST),,need-cargo need-cc) web
	$(if $(MENDCAST),,$(CARGO) build --release --locked --bin mendcast)
	cd web && MENDCAST=$(abspath $(or $(MENDCAST),$(TARGET)/release/mendcast)) nice node test/cohorts.mjs \
	  --runs $(if $(filter file,$(origin RUNS)),10,$(RUNS)) --seconds $(or $(SECONDS),60) --loss '$(or $(LOSS),calls:rate=8%)' \
	  $(if $(BUFFER),--buffer $(BUFFER)) $(COHORTS)

interop: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast
	interop/run $(if $(QUICK),--quick) --bin $(TARGET)/release/mendcast $(if $(DOCS),--write-docs)

# quiche builds BoringSSL, which needs libclang for its bindings.
bench: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench --bin mendcast-bench-peer
	$(CARGO) build --release --locked --manifest-path peers/Cargo.toml --target-dir $(TARGET)/peers || \
	  echo "skipped: the peers in peers/ do not build here (Debian: apt-get install libclang-dev)"
	$(TARGET)/release/mendcast-bench $(if $(QUICK),--quick) \
	  $(if $(wildcard peers),--peers $(TARGET)/peers/release/mendcast-peers) --out bench.json

# Without nginx (Debian: apt-get install nginx-light) its part is left out.
bench-edge: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench --bin mendcast-bench-peer
	$(TARGET)/release/mendcast-bench edge $(if $(QUICK),--quick) --out bench-edge.json

soak: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench
	$(TARGET)/release/mendcast-bench soak $(SOAK)

fuzz: export MENDCAST_CASES := $(or $(CASES),20000)
fuzz: need-cargo need-cc
	$(CARGO) test --release --locked -p mendcast-quic --test hostile mutated
	$(CARGO) test --release --locked -p mendcast-quic --test pair damage
	$(CARGO) test --locked -p mendcast-quic --test schedules
	$(CARGO) test --release --locked -p mendcast-lab random_paths

RUNS ?= 100
SESSIONS ?= 2000
DAY ?= 4000

# Claims of papers that do not hold here fail their experiment, and are told in docs/results.md.
lab: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast
	-$(TARGET)/release/mendcast lab run transport speed --out out
	-$(TARGET)/release/mendcast lab run 'autorec*' 'art*' 'formula*' 'guard*' 'live*' 'deadline*' 'probes' 'wira*' 'congestion*' --runs $(RUNS) --out out
	$(TARGET)/release/mendcast lab results out > out/results.md
	cp out/results.md docs/results.md
	cp out/deadline-rtt/1-freezes_per_100s.svg docs/pictures/deadline-freezes.svg
	cp out/deadline-rtt/1-redundancy_cost_bytes.svg docs/pictures/deadline-cost.svg
	cp out/live-thinning/1-freeze_ms_per_100s.svg docs/pictures/deadline-thinning.svg
	rm -rf out/ab
	$(TARGET)/release/mendcast lab ab --paired --sessions $(SESSIONS) --out out/ab
	$(TARGET)/release/mendcast lab viewers out/ab > out/viewers.md
	cp out/viewers.md docs/viewers.md
	$(TARGET)/release/mendcast lab visits --out out/visits
	cp out/visits/first-frame.md docs/ && cp out/visits/first-frame.svg docs/pictures/
	$(TARGET)/release/mendcast lab autoplex --sessions $(DAY) --out out/autoplex \
	  --ways bbr,constant-6,paper-retransmission,paper-goodput,demand-3,safe,oracle
	$(TARGET)/release/mendcast lab autoplex --sessions $(DAY) --shared --seeds 5 --out out/autoplex \
	  --ways bbr,paper-retransmission,demand-3,safe,oracle
	cat out/autoplex/autoplex.md out/autoplex/autoplex-shared.md > docs/autoplex-figures.md
	cp out/autoplex/*.svg docs/pictures/

autoplex: need-cargo need-cc
	$(CARGO) build --release --locked --manifest-path autoplex/Cargo.toml --target-dir $(TARGET)/autoplex
	mkdir -p $(TARGET)/release && cp $(TARGET)/autoplex/release/mendcast-autoplex $(TARGET)/release/

test-autoplex: need-cargo need-cc
	$(CARGO) test --locked --manifest-path autoplex/Cargo.toml --target-dir $(TARGET)/autoplex
	MENDCAST_AUTOPLEX=$(abspath $(TARGET))/autoplex/debug/mendcast-autoplex \
	  $(CARGO) test --locked -p mendcast --test live a_groups_cap_applies

web:
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "missing: Node.js 18 or newer with npm (Debian: apt-get install nodejs npm)"; exit 1; }
	cd web && npm ci --ignore-scripts --no-audit --no-fund && npm run --silent build

conformance:
	@conformance/check --write $(if $(LIST),--list $(LIST))

h3spec: export MENDCAST_ROWS := $(abspath out/conformance)
h3spec: need-cargo need-cc
	mkdir -p $(MENDCAST_ROWS)
	$(CARGO) test --locked -p mendcast-quic --test hostile h3spec
	$(CARGO) test --locked -p mendcast-http3 --test h3spec
	conformance/check --write --rows $(MENDCAST_ROWS)

lint: need-cargo need-cc
	conformance/check
	structure/check
	structure/prose
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(MAKE) --no-print-directory lint-autoplex

lint-autoplex: AUTOPLEX := --locked --manifest-path autoplex/Cargo.toml --target-dir $(TARGET)/autoplex
lint-autoplex: need-cargo need-cc
	$(CARGO) fmt --manifest-path autoplex/Cargo.toml --check
	$(CARGO) clippy $(AUTOPLEX) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(AUTOPLEX) --no-deps
