# make demo   record a real parallel program and look at it (needs root)
# make test   everything that must hold (needs root for the part that loads BPF)
# make bench  speed and size, as ratios against other tools
# make lint   style, types, import arrows
# make install, make uninstall   the command on PATH

PREFIX ?= /usr/local
LIBRARY = $(DESTDIR)$(PREFIX)/lib/hpcd
TOOLS = .venv/bin

.PHONY: demo test bench lint setup-run setup-demo setup-test install uninstall man clean

demo: setup-demo
	sh setup/demo.sh

test: setup-test lint
	$(TOOLS)/pytest

bench: setup-test
	$(TOOLS)/python -m benchmarks

lint: setup-test
	$(TOOLS)/ruff check .
	$(TOOLS)/ruff format --check .
	@sh setup/tree.sh build/tree
	MYPYPATH=build/tree $(TOOLS)/mypy -p hpcd
	cd build/tree && $(CURDIR)/$(TOOLS)/lint-imports --config $(CURDIR)/pyproject.toml

setup-run:
	@sh setup/packages.sh setup/packages-run.txt

setup-demo: setup-run
	@sh setup/packages.sh setup/packages-demo.txt
	@test -e .venv/.installed || sh setup/venv.sh .venv -e .

setup-test: setup-run
	@sh setup/packages.sh setup/packages-test.txt
	@sh setup/venv.sh .venv -e '.[dev]'

install: setup-run
	rm -rf $(LIBRARY)
	mkdir -p $(LIBRARY) $(DESTDIR)$(PREFIX)/bin
	@sh setup/venv.sh $(LIBRARY) .
	ln -sf $(PREFIX)/lib/hpcd/bin/hpcd $(DESTDIR)$(PREFIX)/bin/hpcd

uninstall:
	rm -rf $(LIBRARY) $(DESTDIR)$(PREFIX)/bin/hpcd

man: setup-test
	$(TOOLS)/python setup/manpage.py >docs/hpcd.1

clean:
	rm -rf build
