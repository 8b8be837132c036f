#!/bin/sh
# tree.sh DIR: the packages laid out as they are imported: bpf/ is hpcd.bpf, and so on. mypy and
# import-linter do not know pyproject.toml's mapping of folders (nor follow links).
set -eu

rm -rf "$1"
mkdir -p "$1"
cp -a hpcd "$1/hpcd"
cp -a bpf daemon analysis interchange viewer cli "$1/hpcd/"
