#!/bin/sh
# rpm.sh DIR [COMMIT]: the RPM package of what is committed, in DIR, checked by rpmlint (RPMLINT).
# Built in a copy, by Debian's rpmbuild. The same commit gives the same bytes.
set -eu

mkdir -p "$1"
out=$(cd "$1" && pwd)
commit=${2:-HEAD}
umask 022
# All files have the time of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
version=$(sh setup/version.sh "$commit")
# What RHEL 9 and SLES 15 have beside an older one of the system's own.
PYTHON=/usr/bin/python3.11
export SOURCE_DATE_EPOCH PYTHON LC_ALL=C.UTF-8 TZ=UTC PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
export SETUPTOOLS_SCM_PRETEND_VERSION="$version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/hpcd"
git archive "$commit" | tar -x -C "$work/hpcd"
cd "$work/hpcd"
# The libraries that the Debian package has.
export PIP_CONSTRAINT="$PWD/debian/constraints.txt"
stage=$work/stage
{
	sh setup/objects.sh
	sh setup/install.sh /usr "$stage"
	sh setup/prune.sh "$stage"
} >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
# Compiled once, for all users; of files that only root replaces.
library=$stage/usr/lib/hpcd
"$PYTHON" -m compileall -q --invalidation-mode unchecked-hash -s "$stage" -p / "$library/lib"
# Units of packages are not the administrator's.
mkdir -p "$stage/usr/lib/systemd"
mv "$stage/etc/systemd/system" "$stage/usr/lib/systemd/system"
rmdir "$stage/etc/systemd"
gzip -9n "$stage"/usr/share/man/man*/*
mkdir -p "$stage/usr/share/doc/hpcd" "$stage/usr/share/licenses/hpcd"
cp README.md CHANGELOG.md docs/*.md "$stage/usr/share/doc/hpcd"
cp LICENSE "$stage/usr/share/licenses/hpcd"
rpmbuild -bb --nodeps --quiet \
	--define "_topdir $work/rpm" \
	--define "_prefix /usr" \
	--define "_sysconfdir /etc" \
	--define "_buildhost localhost" \
	--define "use_source_date_epoch_as_buildtime 1" \
	--define "clamp_mtime_to_source_date_epoch 1" \
	--define "_binary_payload w3.zstdio" \
	--define "hpcd_version $(echo "$version" | sed 's/\.dev/~dev/')" \
	--define "hpcd_stage $stage" \
	packaging/rpm/hpcd.spec >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
${RPMLINT:-rpmlint --strict -c packaging/rpm/rpmlint.toml} "$work"/rpm/RPMS/*/*.rpm
mv "$work"/rpm/RPMS/*/*.rpm "$out"
ls -l "$out"
