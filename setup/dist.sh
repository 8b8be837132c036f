#!/bin/sh
# dist.sh DIR: the source distribution and the wheel of what is checked out, in DIR, with the BPF
# programs and the kernels compiled for both processors. The same commit gives the same bytes.
set -eu

out=$1
umask 022
# The time of the commit, or of the changelog where there is no git: all files have it.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH PYTHONHASHSEED=0
python=${PYTHON:-.venv/bin/python}
sh setup/objects.sh x86_64 aarch64
mkdir -p "$out"
# In a folder of its own: what setuptools leaves behind would be in the next wheel.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m build --sdist --outdir "$work/sdist" . >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
"$python" setup/repack.py "$work"/sdist/hpcd-*.tar.gz "$out"
mkdir "$work/tree"
tar -xzf "$out"/"$(basename "$work"/sdist/hpcd-*.tar.gz)" -C "$work/tree" --strip-components 1
"$python" -m build --wheel --outdir "$work/wheel" "$work/tree" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
mv "$work"/wheel/*.whl "$out"
ls -l "$out"
