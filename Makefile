# make demo    record a real parallel program and look at it (needs root)
# make test    everything that must hold (needs root for the part that loads BPF)
# make bench   speed and size, as ratios against other tools; first all at their smallest size
# make soak    what takes hours: the long tests, killed recorders, failing disks, 10^4 hostile files of each kind, 10^5 messages, random programs and mappings, programs with planted causes, a hundred threads at ever new paths
# make lint    style, types, import arrows
# make setup   what all of the above need: Debian packages and .venv
# make install, make uninstall   the command on PATH: PREFIX=/usr/local, DESTDIR
# make objects   the BPF programs and the kernels that work on records, compiled (needs clang, llvm, lld)
#              and bpf/wire.py, what C and Python share, from the headers
# make dist    source distribution and wheel in build/dist; make deb the Debian package in build/deb
#              (DEBFULLNAME and DEBEMAIL: its maintainer); make rpm the RPM package in build/rpm
# make test-packages   both installed where nothing else is, upgraded and removed (minutes)
# make test-emulated   the kernels on an aarch64 that QEMU emulates (minutes)
# make test-kernels    recording on older kernels that QEMU emulates (half an hour); KERNELS="NAME ..." are some
# make docs    the documentation as a web site in build/site
# make man     manual pages and docs/recording-options.md from the code
# make clean   removes what demo, lint and tests made; make distclean .venv and caches too

PREFIX ?= /usr/local
TOOLS = .venv/bin

.PHONY: dist deb rpm docs test-packages test-emulated test-kernels
.PHONY: objects demo test bench soak lint man clean distclean install uninstall
.PHONY: setup setup-run setup-demo setup-lint setup-test setup-bench
# Each step uses what the one before made.
.NOTPARALLEL:

# As root in another user's checkout, what was made goes to the owner at the end, failed or not.
as_owner = code=$$?; sh setup/own.sh; exit $$code

demo: setup-demo objects
	@sh setup/demo.sh; $(as_owner)

test: setup-test setup-lint objects
	@sh setup/tests.sh; $(as_owner)

soak: setup-test objects
	$(TOOLS)/pytest -m long tests && $(TOOLS)/python -m tests.soak; $(as_owner)

bench: setup-bench objects
	@$(TOOLS)/pytest tests/benchmarks && $(TOOLS)/python -m benchmarks; $(as_owner)

lint: setup-lint
	@sh setup/lint.sh; $(as_owner)

setup: setup-bench

dist: setup-test
	@sh setup/packages.sh setup/packages-object.txt
	@sh setup/dist.sh build/dist; $(as_owner)

deb:
	@sh setup/packages.sh setup/packages-deb.txt
	@sh setup/deb.sh build/deb; $(as_owner)

rpm:
	@sh setup/packages.sh setup/packages-deb.txt setup/rpm-packages.txt
	@sh setup/rpm.sh build/rpm; $(as_owner)

PACKAGES = tests/packages
test-packages: setup-test objects
	@sh setup/packages.sh setup/packages-object.txt setup/packages-deb.txt setup/packages-docs.txt \
		setup/rpm-packages.txt
	@sh setup/venv.sh dev docs
	$(TOOLS)/pytest --timeout 1800 $(PACKAGES); $(as_owner)

test-emulated: setup-test
	@sh setup/packages.sh setup/packages-object.txt setup/emulation-packages.txt
	@sh setup/emulated.sh; $(as_owner)

KERNELS =
test-kernels: setup-test objects
	@sh setup/packages.sh setup/kernels/packages.txt
	@sh setup/kernels.sh $(KERNELS); $(as_owner)

docs: setup-run
	@sh setup/packages.sh setup/packages-docs.txt
	@sh setup/venv.sh docs
	@sh setup/tree.sh build/tree
	NO_MKDOCS_2_WARNING=1 $(TOOLS)/mkdocs build --strict --quiet --site-dir build/site; $(as_owner)

objects:
	@sh setup/packages.sh setup/packages-object.txt
	@sh setup/venv.sh
	@$(TOOLS)/python setup/wire.py && sh setup/objects.sh; $(as_owner)

setup-run:
	@sh setup/packages.sh setup/packages-run.txt
	@sh setup/venv.sh

setup-demo:
	@sh setup/packages.sh setup/packages-run.txt setup/packages-demo.txt
	@sh setup/venv.sh

setup-lint:
	@sh setup/packages.sh setup/packages-run.txt setup/packages-lint.txt
	@sh setup/venv.sh dev

setup-test:
	@sh setup/packages.sh setup/packages-*.txt
	@sh setup/venv.sh dev
	@test -d node_modules/axe-core || npm ci --ignore-scripts --no-audit --no-fund || \
		echo "axe-core cannot be had: the tests that need it are skipped" >&2

setup-bench:
	@sh setup/packages.sh setup/packages-*.txt
	@sh setup/venv.sh dev

install: objects
	@sh setup/packages.sh setup/packages-run.txt
	@sh setup/install.sh "$(PREFIX)" "$(DESTDIR)"

uninstall:
	rm -rf "$(DESTDIR)$(PREFIX)/lib/hpcd"
	rm -f "$(DESTDIR)$(PREFIX)/bin/hpcd" "$(DESTDIR)$(PREFIX)/share/man/man1/hpcd.1"
	rm -f "$(DESTDIR)$(PREFIX)/share/man/man5/hpcd.toml.5"
	cd "$(DESTDIR)$(PREFIX)/share" && rm -f bash-completion/completions/hpcd \
		zsh/site-functions/_hpcd fish/vendor_completions.d/hpcd.fish
	[ -n "$(DESTDIR)" ] || ! [ -d /run/systemd/system ] || systemctl disable --now hpcd.service hpcd.socket 2>/dev/null || true
	cd "$(DESTDIR)/" && rm -f etc/systemd/system/hpcd.service etc/systemd/system/hpcd.socket \
		etc/systemd/system/hpcd.slice usr/lib/sysusers.d/hpcd.conf usr/lib/tmpfiles.d/hpcd.conf

man: setup-run
	$(TOOLS)/python setup/manpage.py >docs/hpcd.1.new
	mv docs/hpcd.1.new docs/hpcd.1
	$(TOOLS)/python setup/manpage.py configuration >docs/hpcd.toml.5.new
	mv docs/hpcd.toml.5.new docs/hpcd.toml.5
	$(TOOLS)/python setup/manpage.py options >docs/recording-options.md.new
	mv docs/recording-options.md.new docs/recording-options.md

clean:
	rm -rf build hpcd/_version.py

distclean: clean
	rm -rf .venv *.egg-info .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
