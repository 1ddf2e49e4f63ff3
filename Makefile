# narufs: `make run` shows it at work, `make test` proves it, `make help` lists the rest.
CARGO ?= cargo
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= /sbin
LIBDIR ?= $(PREFIX)/lib
SHAREDIR ?= $(PREFIX)/share
ZSHDIR ?= $(SHAREDIR)/zsh/site-functions
UNITDIR ?= $(PREFIX)/lib/systemd/system
GENERATED ?= target/generated
# Where the names for mount(8) and others lead.
PROGRAM ?= $(BINDIR)/narufs
NARUFS = target/release/narufs
HELPERS = mkfs.narufs fsck.narufs mount.narufs mount.fuse.narufs umount.narufs umount.fuse.narufs
UNITS = narufs@.service narufs-scratch@.service narufs-mount@.service narufs-mount@.socket

.PHONY: help run stop build test test-full test-baselines crash-full soak endure outlive cluster cluster-figures fuzz fuzz-keep fuzz-coverage doors test-sqlite bench-sqlite bench bench-full bench-agree bench-stream bench-turns report reproduce sharing requests api publish-check golden install install-files uninstall deb deb-test test-kernels test-systemd static release lint deps test-deps bench-deps clean c-header install-doors bench-c fio fio-engine bench-fio test-redb bench-redb test-sqlite-tcl test-nvdimm replay test-objects bench-objects test-slatedb

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

run: deps build ## mount an image at ./mnt, run real programs, kill the server, verify, report
	scripts/run.sh

stop: ## unmount ./mnt and remove what `make run` left
	scripts/stop.sh

build: ## build the release binaries
	$(CARGO) build --release --locked --bins

doors: ## build the ways in for programs that are there already (docs/doors): libraries, in target/release
	$(CARGO) build --release --locked -p narufs-sqlite -p narufs-sqlite-preload
	$(CARGO) rustc --release --locked -p narufs-c --lib --crate-type staticlib # alone: else it is not optimised as a whole
	LIBDIR= doors/c/lay.sh target/release/libnarufs_c.a "" $(CURDIR)/target/release/c
	ln -sf c/lib/libnarufs.so c/lib/libnarufs.a target/release/
	if ! command -v fio >/dev/null; then echo "fio is not installed: its engine, narufs-fio.so, is left out"; \
		elif $(MAKE) fio-engine; then :; else echo "narufs-fio.so is left out: it takes fio's sources (deb-src)"; fi

fio: doors fio-engine ## build narufs as an engine of the fio that is installed: target/release/narufs-fio.so

fio-engine: # of what `doors` has laid
	doors/fio/build.sh target/release/c target/release/c/lib
	ln -sf c/lib/narufs-fio.so target/release/

bench-fio: build fio ## what fio says of the library, the mount, ext4 and xfs (root)
	doors/fio/bench.sh target/release/c/lib/narufs-fio.so $(NARUFS) target

bench-c: doors ## cached overwrites of 4 KiB in C and in Rust, in turn
	$(CARGO) build --release --locked -p narufs-c --example overwrite
	doors/c/bench/turns.sh target/release/c target/release/examples/overwrite

deps:
	scripts/deps.sh run

test-deps:
	scripts/deps.sh test

bench-deps:
	scripts/deps.sh bench

test: test-deps lint ## everything that CI runs
	scripts/test.sh

test-full: test-deps lint ## the same at ten times the length, with the long programs
	NARUFS_TEST_SCALE=10 scripts/test.sh
	NARUFS_TEST_SCALE=10 $(MAKE) cluster SCENARIOS=gluster
	OPERATIONS=40 $(MAKE) replay
	$(MAKE) endure ENDURE_SECONDS=600

test-baselines: ## what narufs is measured against, `-o baseline=`: its own tests
	$(CARGO) test --locked -p narufs-engine -p narufs-cli --lib --features baselines
	$(CARGO) test --locked -p narufs-testing --features baselines -- baselines

crash-full: ## every crash state of every pair of operations, hours, or PART=i/n of it, or TRIPLES=n: into docs/crash-full.tsv
	scripts/crash-full.sh

SOAK_SECONDS ?= 1800
soak: test-deps build ## fio verifies what it wrote with little memory and through kills, SOAK_SECONDS (1800) (root)
	scripts/soak.sh $(SOAK_SECONDS)

ENDURE_SECONDS ?= 21600
endure: test-deps build ## everyday programs, kills, remounts, growth, full images, checked trees, ENDURE_SECONDS (21600): nothing lost, nothing grows (root)
	scripts/endure.sh $(ENDURE_SECONDS)

KILLS ?= 10000
outlive: test-deps build ## real programs on mounts whose servers are killed, KILLS (10000): hours (root)
	$(CARGO) build --release --locked -p narufs-testing --bin narufs-outlive
	scripts/outlive.sh $(KILLS)

cluster: build ## etcd, PostgreSQL, JuiceFS and GlusterFS on three nodes of this machine: killed, power cut; docs/CLUSTER.md (root)
	scripts/deps.sh cluster
	$(CARGO) build --release --locked -p narufs-testing --bin narufs-drive
	scripts/cluster.sh $(SCENARIOS)

cluster-figures: build ## etcd and PostgreSQL on three nodes, on ext4, xfs and narufs in turn: their own latencies (root)
	scripts/deps.sh cluster
	testing/cluster/figures.sh

test-sqlite: ## SQLite cut off at every call, and 1000 kills: docs/doors/SQLITE.md
	NARUFS_SQLITE_EVERY=1 NARUFS_SQLITE_KILLS=1000 $(CARGO) test --locked -p narufs-sqlite --features long -- --nocapture
	$(CARGO) test --locked -p narufs-sqlite-preload

test-sqlite-tcl: ## SQLite's own Tcl tests, threadtest3 and mptest with the VFS as the default, an hour: docs/doors/SQLITE.md (root)
	scripts/deps.sh sqlite
	$(CARGO) build --locked --profile proof -p narufs-sqlite --features mortal
	for what in tcl atomic threads processes; do \
		scripts/sqlite-suite.sh target/proof/libnarufs_sqlite.a target/sqlite-suite $$what || failed=1; done; test -z "$$failed"

bench-sqlite: build doors ## SQLite's commits on ext4 and in the process: rates, flushes, bytes (root)
	scripts/deps.sh sqlite
	scripts/bench-sqlite.sh target/release/libnarufs_sqlite.so
	scripts/sqlite-suite.sh target/release/libnarufs_sqlite.a target/sqlite-speed speed

test-redb: ## redb's own tests on narufs, 200 kills, a drive that loses power: docs/doors/REDB.md (root)
	$(CARGO) build --locked -p narufs-testing --bin narufs-drive
	NARUFS_REDB_KILLS=200 NARUFS_DRIVE=$(CURDIR)/target/debug/narufs-drive \
		$(CARGO) test --locked -p narufs-redb --features long -- --nocapture
	doors/redb/suite.sh

bench-redb: ## durable commits of redb on a file and in an image, in turn, below DIR (target); RING: its journal in emulated NVM
	$(CARGO) run --release --locked -p narufs-redb --example commits -- $(or $(DIR),target) 500 5 $(RING)
test-objects: ## the store of objects killed 150 times, cut off at thousands of moments, and with a million keys: docs/doors/OBJECTS.md
	NARUFS_OBJECT_KILLS=150 NARUFS_OBJECT_STATES=3000 NARUFS_OBJECTS=1000000 \
		$(CARGO) test --locked --profile proof -p narufs-object-store -- --nocapture

SLATEDB = $(CARGO) run --locked --manifest-path doors/object_store/outside/Cargo.toml --target-dir target --
test-slatedb: ## SlateDB on the store of objects, 200 kills, a drive that loses power 20 times: docs/doors/OBJECTS.md (root)
	$(CARGO) build --locked -p narufs-testing --bin narufs-drive
	$(SLATEDB) kills --kills 200
	$(SLATEDB) losses --drive target/debug/narufs-drive

bench-objects: build ## durable puts, and gets, beside LocalFileSystem on ext4, on one device in turn (root)
	$(CARGO) build --release --locked -p narufs-object-store --example puts
	scripts/bench-objects.sh target/release/examples/puts

FUZZ_SECONDS ?= 600
fuzz: test-deps ## arbitrary images, requests, and memory left by a server, FUZZ_SECONDS (600) each; recorded in docs/fuzz.tsv
	FUZZ_RECORD=docs/fuzz.tsv scripts/fuzz.sh $(FUZZ_SECONDS)

fuzz-keep: ## keeps the inputs that make fuzz has found, the fewest that reach as much, in fuzz/seeds
	scripts/fuzz-keep.sh

fuzz-coverage: ## what of the code that reads such input the fuzzers' inputs reach: docs/TRUST.md (rustup's llvm-tools)
	scripts/fuzz-coverage.sh

bench: bench-deps build ## compare file systems on one device, some minutes; target/report (root)
	$(NARUFS) compare --quick --work target --report target/report

bench-full: bench-deps build ## the same with every workload and contender, hours
	$(NARUFS) compare --work target --report target/report

bench-agree: build ## narufs bench beside fio and dbench on tmpfs and ext4 (root)
	scripts/deps.sh agree
	scripts/agree.sh

bench-stream: build ## a long file written and read through library and mount, beside fio (root)
	scripts/deps.sh agree
	scripts/stream.sh

bench-turns: ## two builds of narufs in turn: BEFORE and AFTER are directories of programs (root)
	scripts/turns.sh $(or $(BEFORE),$(error give BEFORE, for example BEFORE=../before/target/release)) $(or $(AFTER),target/release) $(WORKLOADS)

sharing: ## what cache lines pairs of operations share: docs/perf/experiments/0002
	cargo run --locked --release -p narufs-testing --bin narufs-sharing -- docs/perf/experiments testing/tests/sharing.free

golden: build ## golden images by this build, below testing/golden in the directory NAME, all or those of SETS (root)
	$(CARGO) run --locked --release -p narufs-testing --bin narufs-golden -- $(NARUFS) testing/golden/v1/$(or $(NAME),$(error give NAME, for example NAME=0.2.0)) $(SETS)

requests: ## how many requests common operations send to a mount: docs/REQUESTS.md (root)
	$(CARGO) run --locked --release -p narufs-testing --bin narufs-requests -- docs

report: bench-deps build ## the committed report, docs/report and docs/perf/README.md, in some 15 minutes (root)
	$(NARUFS) compare --rounds 2 --seconds 1 --compact --size 2G --threads 2,16 --spill-ratio 1.25 \
		--workloads DWOM,DWSL,MWCM,MRPM,varmail,tokubench,spill \
		--contenders ext4,ext4-journal-ram,ext4-ram,ext4-no-journal,xfs,tmpfs-swap,narufs-nvm,narufs-ssd,narufs-ssd-window,narufs-lib-nvm,narufs-lib-ssd,narufs-scratch,narufs-scratch-cached,narufs-lib-scratch \
		--work target --report docs/report --table docs/perf --commit "$$(git describe --always --dirty)"

reproduce: ## build narufs-reproduce, with the papers' baselines, for `narufs reproduce`: docs/REPRODUCE.md
	$(CARGO) build --release --locked -p narufs-research --features baselines --bin narufs-reproduce --target-dir target/reproduce

api: ## write the list of the library's public items anew: narufs/api.txt
	NARUFS_API_WRITE=1 $(CARGO) test --locked -p narufs --test api

c-header: ## write doors/c/narufs.h anew
	NARUFS_HEADER_WRITE=1 $(CARGO) test --locked -p narufs-c --test door the_header_is_what_the_source_says

publish-check: ## what would be published builds from its packages alone
	$(CARGO) publish --dry-run --locked -p narufs-engine -p narufs -p narufs-fuse

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

install: build doors install-files install-doors ## install programs, libraries, man pages, completions, units, names for mount(8) and others

install-doors: # what `doors` has built
	doors/c/lay.sh target/release/libnarufs_c.a "$(DESTDIR)" $(PREFIX)
	test ! -e target/release/c/lib/narufs-fio.so || \
		install -D -m 0644 -t $(DESTDIR)$(LIBDIR) target/release/c/lib/narufs-fio.so

install-files: # what was built: as `install`, and as scripts/deb.sh puts it into a package
	install -D -m 0755 $(NARUFS) $(DESTDIR)$(BINDIR)/narufs
	install -m 0755 $(NARUFS)-bench $(DESTDIR)$(BINDIR)/narufs-bench
	install -d $(DESTDIR)$(SBINDIR) $(DESTDIR)$(UNITDIR)
	for name in $(HELPERS); do \
		ln -sf $(PROGRAM) $(DESTDIR)$(SBINDIR)/$$name; done
	for library in libnarufs_sqlite.so libnarufs_sqlite_preload.so libnarufs_sqlite.a; do \
		test ! -e target/release/$$library || install -D -m 0644 -t $(DESTDIR)$(LIBDIR) target/release/$$library; done
	rm -rf $(GENERATED) && $(NARUFS) generate $(GENERATED)
	install -D -m 0644 -t $(DESTDIR)$(SHAREDIR)/man/man8 $(GENERATED)/*.8
	install -D -m 0644 -t $(DESTDIR)$(ZSHDIR) $(GENERATED)/_*
	install -D -m 0644 -t $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d $(GENERATED)/*.fish
	for file in $(GENERATED)/*.bash; do \
		install -D -m 0644 $$file $(DESTDIR)$(SHAREDIR)/bash-completion/completions/$$(basename $$file .bash); done
	for unit in $(UNITS); do \
		sed 's,/usr/local/bin/,$(BINDIR)/,g' docs/systemd/$$unit >$(DESTDIR)$(UNITDIR)/$$unit; done

uninstall: ## remove what install made
	rm -f $(DESTDIR)$(BINDIR)/narufs $(DESTDIR)$(BINDIR)/narufs-bench
	rm -f $(DESTDIR)$(LIBDIR)/libnarufs_sqlite.so $(DESTDIR)$(LIBDIR)/libnarufs_sqlite_preload.so $(DESTDIR)$(LIBDIR)/libnarufs_sqlite.a
	for name in $(HELPERS); do \
		rm -f $(DESTDIR)$(SBINDIR)/$$name; done
	for name in narufs $(HELPERS); do \
		rm -f $(DESTDIR)$(SHAREDIR)/man/man8/$$name.8 $(DESTDIR)$(SHAREDIR)/man/man8/$$name-*.8 \
			$(DESTDIR)$(SHAREDIR)/bash-completion/completions/$$name $(DESTDIR)$(ZSHDIR)/_$$name \
			$(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/$$name.fish; done
	for unit in $(UNITS); do \
		rm -f $(DESTDIR)$(UNITDIR)/$$unit; done
	rm -f $(DESTDIR)$(LIBDIR)/narufs-fio.so $(DESTDIR)$(LIBDIR)/libnarufs.* $(DESTDIR)$(LIBDIR)/pkgconfig/narufs.pc \
		$(DESTDIR)$(PREFIX)/include/narufs.h $(DESTDIR)$(PREFIX)/share/man/man3/narufs.3

deb: build doors ## a Debian package: target/debian
	scripts/deb.sh

deb-test: deb static ## package and static program in a Debian of their own: install, mount by fstab, purge (root)
	scripts/deb-test.sh

test-kernels: build ## the mount under other kernels of Debian, KERNELS (6.1 6.12 7.3), in QEMU (root)
	scripts/machines.sh kernels $(KERNELS)

test-systemd: deb ## the package in a Debian 12 that systemd runs: fstab, units, kills, reboots, in QEMU (root)
	scripts/machines.sh systemd $(KERNEL)

test-nvdimm: build ## a journal in QEMU's persistent memory, on ext4, XFS and devdax: the power is cut CUTS (50) times each (root)
	scripts/machines.sh nvdimm $(KERNEL)

replay: build ## what losses of power leave of a disk whose writes QEMU has recorded, on ext4 first: LOAD=files|sqlite|git|mail|postgres, DURABILITY=power|window=TIME|process, OPERATIONS (200), STATES (4) (root)
	scripts/machines.sh replay $(KERNEL)

static: ## one program that needs no library: target/x86_64-unknown-linux-musl/release/narufs
	scripts/static.sh

release: deb static ## what is given to others, with checksums: target/release-VERSION
	scripts/release.sh

clean: ## remove what was built
	$(CARGO) clean
