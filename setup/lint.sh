#!/bin/sh
# lint.sh: style, wording, types and import arrows; types of the viewer's page.
set -eu

run() {
	echo "+ $*"
	"$@"
}

tools=$PWD/.venv/bin
run "$tools/ruff" check .
run "$tools/ruff" format --check .
run "$tools/python" setup/wording.py
if ! command -v tsc >/dev/null; then
	echo "lint.sh: tsc is missing: install what setup/packages-lint.txt lists" >&2
	exit 1
fi
run tsc -p jsconfig.json
run node setup/page_rules.mjs viewer/web
sh setup/tree.sh build/tree
export MYPYPATH=build/tree
run "$tools/mypy" --strict -p hpcd
cd build/tree
run "$tools/lint-imports" --config ../../pyproject.toml
