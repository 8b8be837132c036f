#!/bin/sh
# deb.sh DIR [COMMIT]: the Debian package of what is committed, in DIR, checked by lintian (LINTIAN).
# Built in a copy.
set -eu

mkdir -p "$1"
out=$(cd "$1" && pwd)
umask 022
# Where packages are built shows in nothing, so it may differ.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/hpcd"
git archive "${2:-HEAD}" | tar -x -C "$work/hpcd"
cd "$work/hpcd"
dpkg-buildpackage --build=binary --no-sign >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cd "$work"
${LINTIAN:-lintian} --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs ./*.changes
mv ./*.deb ./*.changes ./*.buildinfo "$out"
ls -l "$out"
