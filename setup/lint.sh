#!/bin/sh
# lint.sh: style, types and import arrows.
set -eu

run() {
	echo "+ $*"
	"$@"
}

tools=$PWD/.venv/bin
run "$tools/ruff" check .
run "$tools/ruff" format --check .
sh setup/tree.sh build/tree
export MYPYPATH=build/tree
run "$tools/mypy" --strict -p hpcd
cd build/tree
run "$tools/lint-imports" --config ../../pyproject.toml
