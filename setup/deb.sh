#!/bin/sh
# deb.sh DIR [COMMIT]: the Debian package of what is committed, in DIR, checked by lintian (LINTIAN).
# Built in a copy. The same commit gives the same bytes. DEBFULLNAME and DEBEMAIL, as Debian's tools have
# them, name its maintainer.
set -eu

mkdir -p "$1"
out=$(cd "$1" && pwd)
umask 022
# All files have the time of the commit, or are older.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "${2:-HEAD}")
export SOURCE_DATE_EPOCH
version=$(sh setup/version.sh "${2:-HEAD}" | sed 's/\.dev/~dev/')
# Where packages are built shows in nothing, so it may differ.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/hpcd"
git archive "${2:-HEAD}" | tar -x -C "$work/hpcd"
cd "$work/hpcd"
sed -i "1s/([^)]*)/($version)/" debian/changelog
if [ -n "${DEBEMAIL:-}" ]; then
	maintainer="${DEBFULLNAME:-The hpcd authors} <$DEBEMAIL>"
	MAINTAINER=$maintainer perl -pi -e 's/^Maintainer: .*/Maintainer: $ENV{MAINTAINER}/' debian/control
	MAINTAINER=$maintainer perl -pi -e 's/^( --) .*>  /$1 $ENV{MAINTAINER}  /' debian/changelog
fi
dpkg-buildpackage --build=binary --no-sign >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cd "$work"
${LINTIAN:-lintian} --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs ./*.changes
mv ./*.deb ./*.changes ./*.buildinfo "$out"
ls -l "$out"
