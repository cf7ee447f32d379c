# Targets install missing Debian packages if run as root, or name them in one line.
#
#   make demo         server, publisher, lossy link and viewers in one process, with a live table
#   make test         builds everything and runs every test (a few minutes)
#   make e2e          plays through a lossy link in Chromium; needs Node, Chromium and ffmpeg
#   make e2e-ladder   in Chromium: hls.js switches between renditions, several tracks of one connection, time shift
#   make e2e-tracks   plays streams whose tracks change in Chromium: early audio, camera off, new encoder;
#                     CAMERA_OFF=60
#   make e2e-cohorts  compares recovery schemes in Chromium behind a link with the losses of calls: freezes and
#                     copies, one minute and ten runs each (35 minutes); RUNS=2 SECONDS=30 LOSS=calls:rate=12%
#                     BUFFER=800 (ms), MENDCAST=FILE for an existing binary
#   make interop      tests third-party clients against the server; QUICK=1 for the short set, DOCS=1 also writes
#                     docs/develop/interop.md
#   make bench        compares CPU time and memory with other stacks; QUICK=1 for a short run
#   make bench-edge   measures the cost of a live viewer, next to quinn and nginx; QUICK=1 for a short run
#   make bench-products  compares the cost of live viewers with moq-relay, MediaMTX and nginx-rtmp; QUICK=1 for a short
#                     run, PAGE=FILE writes the results as Markdown, MEDIAMTX=DIR for a clone of its repository,
#                     PRODUCTS="--rounds 5"
#   make bench-pacing  measures how evenly servers send, next to quinn, quiche and s2n-quic; QUICK=1 for a short run
#   make bench-count  counts instructions of the server in fixed workloads under valgrind; fails above +5 %
#   make bench-history COMMITS="A B"   measures commits in turns, and draws them; ROUNDS=5, EDGE=1 for live viewers,
#                     DECISION=1 for AutoPlex's decision
#   make soak         200 viewers join and leave behind a lossy link for half an hour, alone and next to hostile
#                     neighbours, which must not affect them; SOAK="--minutes 2" for a smoke test
#   make fuzz         runs the random tests longer (CASES=20000): frames, schedules, paths; see fuzz/README.md
#   make lab          runs all experiments into out/ and writes pages of docs/reproduce/: results.md, with every table
#                     in target/results.md (RUNS=100 per point, two to four hours of CPU time), viewers.md (SESSIONS=500 of each
#                     of five seeds, a quarter of an hour), first-frame.md, autoplex-figures.md (DAY=4000 viewers per
#                     day behind shared bottlenecks), client-changes.md (TRACE=FILE also replays a recorded path), and
#                     papers.md with a page per paper
#   make reference    writes commands.md, configuration.md and openapi.json of docs/reference/ from their definitions in the code
#   make site         builds docs/ into target/site with mdbook, and checks its links
#   make autoplex     builds the decision program of user groups (mendcast autoplex decide) next to the release build
#                     of mendcast; its query engine takes some minutes the first time
#   make test-autoplex  tests it: equal decisions by DataFusion and our own code, on Spark and ClickHouse if installed,
#                     and edges that exchange decisions (four minutes)
#   make release      builds static programs for x86-64 and arm64, .deb, .rpm, images, SBOM and SHA256SUMS into
#                     out/release; ARCHITECTURES=x86_64 for one, KINDS=edge without the complete program
#   make release-check  builds the release from two clones in different folders, and compares all files
#   make chart-check  renders the Helm chart and checks its manifests; needs Go, and builds helm the first time
#   make install-check  installs the .deb into a fresh Debian, serves, publishes and plays there; as root
#   make web          builds the dashboard and the player page, which the server embeds, into web/dist
#   make conformance  checks RFC requirements against tests and sources; LIST=9000 prints them
#   make h3spec       runs the cases of h3spec and writes their tables to docs/develop/conformance.md
#   make lint         formatting, clippy, documentation, conformance, structure and language; warnings are errors
#   make lint-autoplex  the same for autoplex/; its query engine takes some minutes the first time
#   make lint-fuzz    the same for fuzz/

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test e2e e2e-ladder e2e-tracks e2e-cohorts interop bench bench-edge bench-products bench-pacing bench-count bench-history soak fuzz lab reference site autoplex test-autoplex release release-check install-check chart-check web conformance h3spec lint lint-autoplex lint-fuzz need-cargo need-cc pages

need-cargo:
	@command -v $(CARGO) >/dev/null || { echo "missing: Rust with cargo 1.90 or newer (https://rustup.rs)"; exit 1; }

# aws-lc-sys compiles C code.
need-cc:
	@command -v cc >/dev/null && command -v cmake >/dev/null || { \
	  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	    { apt-get update -q && apt-get install -yq --no-install-recommends gcc g++ make cmake; } >/dev/null; } || { \
	  echo "missing: a C compiler and cmake (Debian: apt-get install gcc g++ cmake)"; exit 1; }

demo: need-cargo need-cc pages
	@echo "building the demo: one to four minutes the first time"
	$(CARGO) build --profile demo --locked --bin mendcast --no-default-features --features edge,tools
	$(TARGET)/demo/mendcast demo $(DEMO)

# The build succeeds without the pages.
pages:
	@if ! command -v npm >/dev/null; then \
	  echo "missing: Node (Debian: apt-get install npm); the binary will have no dashboard and no player page"; \
	elif ! $(MAKE) --no-print-directory web; then \
	  echo "building the pages failed; the binary will have no dashboard and no player page"; fi

test: need-cargo need-cc
	$(CARGO) test --workspace --locked

e2e: need-cargo need-cc web
	$(CARGO) build --locked --bin mendcast
	cd web && MENDCAST=$(abspath $(TARGET))/debug/mendcast node --test test/edge.test.mjs test/parts.test.mjs

# Not part of CI yet.
e2e-ladder: need-cargo need-cc web
	$(CARGO) build --locked --bin mendcast
	cd web && MENDCAST=$(abspath $(TARGET))/debug/mendcast node --test test/ladder.test.mjs test/multitrack.test.mjs test/shift.test.mjs

e2e-tracks: need-cargo need-cc web
	$(CARGO) build --locked --bin mendcast
	cd web && MENDCAST=$(abspath $(TARGET))/debug/mendcast node --test test/tracks.test.mjs

# RUNS applies only if set on the command line, because `make lab` has another default. `nice` leaves CPU time to others.
e2e-cohorts: $(if $(MENDCAST),,need-cargo need-cc) web
	$(if $(MENDCAST),,$(CARGO) build --release --locked --bin mendcast)
	cd web && MENDCAST=$(abspath $(or $(MENDCAST),$(TARGET)/release/mendcast)) nice node test/cohorts.mjs \
	  --runs $(if $(filter file,$(origin RUNS)),10,$(RUNS)) --seconds $(or $(SECONDS),60) --loss '$(or $(LOSS),calls:rate=8%)' \
	  $(if $(BUFFER),--buffer $(BUFFER)) $(COHORTS)

interop: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast
	interop/run $(if $(QUICK),--quick) --bin $(TARGET)/release/mendcast $(if $(DOCS),--write-docs)

# quiche builds BoringSSL, and its bindings need libclang.
bench: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench --bin mendcast-bench-peer
	$(CARGO) build --release --locked --manifest-path peers/Cargo.toml --target-dir $(TARGET)/peers || \
	  echo "skipped: peers/ does not build (Debian: apt-get install libclang-dev)"
	$(TARGET)/release/mendcast-bench $(if $(QUICK),--quick) \
	  $(if $(wildcard peers),--peers $(TARGET)/peers/release/mendcast-peers) --out bench.json

# Without nginx (Debian: apt-get install nginx-light) its part is skipped.
bench-edge: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench --bin mendcast-bench-peer
	$(TARGET)/release/mendcast-bench edge $(if $(QUICK),--quick) --out bench-edge.json

# Without peers/ (Debian: apt-get install libclang-dev) quiche and s2n-quic are skipped.
bench-pacing: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench --bin mendcast-bench-peer
	-$(CARGO) build --release --locked --manifest-path peers/Cargo.toml --target-dir $(TARGET)/peers
	$(TARGET)/release/mendcast-bench pacing $(if $(QUICK),--quick) \
	  --peers $(TARGET)/peers/release/mendcast-peers --out bench-pacing.json

# Missing products are skipped.
bench-products: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench --bin mendcast-bench-peer
	-bench/products $(if $(MEDIAMTX),--mediamtx $(MEDIAMTX))
	$(TARGET)/release/mendcast-bench products --programs $(TARGET)/products/bin --out bench-products.json \
	  $(if $(QUICK),--quick) $(if $(PAGE),--page $(PAGE)) $(PRODUCTS)

# Skipped without valgrind (Debian: apt-get install valgrind).
bench-count: need-cargo need-cc
	$(CARGO) build --locked --bin mendcast-bench
	bench/instructions --bin $(TARGET)/debug/mendcast-bench

bench-history: need-cargo need-cc
	bench/history $(or $(COMMITS),HEAD~50 HEAD) --rounds $(or $(ROUNDS),5) $(if $(EDGE),--edge) $(if $(DECISION),--decision)

soak: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast --bin mendcast-bench
	$(TARGET)/release/mendcast-bench soak $(SOAK)

fuzz: export MENDCAST_CASES := $(or $(CASES),20000)
fuzz: need-cargo need-cc
	$(CARGO) test --release --locked -p mendcast-quic --test hostile mutated
	$(CARGO) test --release --locked -p mendcast-quic --test pair damage
	$(CARGO) test --locked -p mendcast-quic --test schedules
	$(CARGO) test --release --locked -p mendcast-lab random_paths

MDBOOK ?= 0.4.52
RUNS ?= 100
SESSIONS ?= 500
DAY ?= 4000
LAB = $(TARGET)/release/mendcast lab

# A claim that does not hold fails its experiment and is reported in docs/reproduce/results.md, so failures are ignored here.
lab: need-cargo need-cc
	$(CARGO) build --release --locked --bin mendcast
	-$(LAB) run transport speed --out out
	-$(LAB) run 'autorec*' 'art*' 'dash*' 'formula*' 'guard*' 'live*' 'deadline*' 'probes' 'wira*' 'congestion*' --runs $(RUNS) --out out
	$(LAB) report out --page $(TARGET)/results.md > $(TARGET)/summary.md
	mv $(TARGET)/summary.md docs/reproduce/results.md
	cp out/deadline-rtt/1-freezes_per_100s.svg docs/reproduce/pictures/deadline-freezes.svg
	cp out/deadline-rtt/1-redundancy_cost_bytes.svg docs/reproduce/pictures/deadline-cost.svg
	cp out/live-thinning/1-freeze_ms_per_100s.svg docs/reproduce/pictures/deadline-thinning.svg
	rm -rf out/population
	$(LAB) population --paired --sessions $(SESSIONS) --seeds 5 --out out/population
	cp out/population/viewers.md docs/reproduce/ && cp out/population/pictures/*.svg docs/reproduce/pictures/
	$(LAB) visits --out out/visits
	cp out/visits/first-frame.md docs/reproduce/ && cp out/visits/first-frame.svg docs/reproduce/pictures/
	$(LAB) groups --out out/groups
	$(LAB) groups --sessions $(DAY) --shared --days 5 --out out/groups \
	  --policies bbr,paper-retransmission,demand-3,safe,oracle
	cat out/groups/autoplex.md out/groups/autoplex-shared.md > docs/reproduce/autoplex-figures.md
	cp out/groups/*.svg docs/reproduce/pictures/
	-$(LAB) rtc $(addprefix --trace ,$(TRACE)) --out out --page docs/reproduce/client-changes.md > $(TARGET)/rtc.md
	$(LAB) report out --papers docs/reproduce

# The generated pages of the reference.
reference: need-cargo need-cc
	$(CARGO) build --locked --bin mendcast
	for page in commands configuration; do \
	  $(TARGET)/debug/mendcast reference $$page > $(TARGET)/page.md && mv $(TARGET)/page.md docs/reference/$$page.md || exit 1; done
	$(TARGET)/debug/mendcast reference openapi > $(TARGET)/page.md && mv $(TARGET)/page.md docs/reference/openapi.json

# mdbook reads a copy of docs/ in which links to the rest of the repository are text.
site:
	@command -v mdbook >/dev/null || [ -x $(TARGET)/tools/bin/mdbook ] || { \
	  echo "installing mdbook $(MDBOOK) into $(TARGET)/tools"; \
	  $(CARGO) install --quiet --locked --root $(TARGET)/tools mdbook --version $(MDBOOK) --no-default-features --features search; }
	@structure/links --copy $(TARGET)/site-source
	@PATH="$$PATH:$(abspath $(TARGET))/tools/bin" MDBOOK_BOOK__SRC=$(abspath $(TARGET))/site-source \
	  RUST_LOG=warn mdbook build --dest-dir $(abspath $(TARGET))/site
	@structure/links --site $(TARGET)/site
	@echo $(TARGET)/site/index.html

autoplex: need-cargo need-cc
	$(CARGO) build --release --locked --manifest-path autoplex/Cargo.toml --target-dir $(TARGET)/autoplex
	mkdir -p $(TARGET)/release && cp $(TARGET)/autoplex/release/mendcast-autoplex $(TARGET)/release/

test-autoplex: need-cargo need-cc
	$(CARGO) test --locked --manifest-path autoplex/Cargo.toml --target-dir $(TARGET)/autoplex
	MENDCAST_AUTOPLEX=$(abspath $(TARGET))/autoplex/debug/mendcast-autoplex \
	  $(CARGO) test --locked -p mendcast --test live a_groups_cap_applies

release: need-cargo
	packaging/release

release-check: need-cargo
	packaging/release-check

chart-check: need-cargo need-cc
	$(CARGO) build --locked --bin mendcast
	packaging/chart-check $(TARGET)/debug/mendcast

# Debian's packages for the check; as root they are installed.
install-check:
	@for program in debootstrap ffmpeg; do command -v $$program >/dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update -q && apt-get install -yq --no-install-recommends debootstrap ffmpeg iproute2; } >/dev/null; done
	packaging/install-check

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

# DENY="bans licenses sources" leaves out the advisories, whose database is fetched from the network.
lint: need-cargo need-cc
	conformance/check
	structure/check
	structure/prose
	structure/links
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p mendcast --bin mendcast --no-default-features --features edge --locked -- -D warnings
	@! $(CARGO) tree --locked -p mendcast --no-default-features --features edge -e normal --prefix none | \
	  grep -E '^(mendcast-rtc|mendcast-lab|reed-solomon)' || { echo "the server contains crates of the testbed"; exit 1; }
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --locked check $(DENY); \
	  else echo "skipped: cargo deny (cargo install --locked cargo-deny)"; fi

lint-autoplex: AUTOPLEX := --locked --manifest-path autoplex/Cargo.toml --target-dir $(TARGET)/autoplex
lint-autoplex: need-cargo need-cc
	$(CARGO) fmt --manifest-path autoplex/Cargo.toml --check
	$(CARGO) clippy $(AUTOPLEX) --all-targets -- -D warnings

lint-fuzz: need-cargo need-cc
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz --bins -- -D warnings
