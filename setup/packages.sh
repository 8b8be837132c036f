#!/bin/sh
# Installs the Debian packages listed in the files given; says nothing and downloads nothing when all
# are there.
set -eu

arch=$(dpkg --print-architecture)
missing=
for package in $(cat "$@" | sed 's/#.*//' | sed "s/ARCH/$arch/"); do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "installing Debian packages needs root; run: sudo apt-get install$missing" >&2
	exit 1
fi
echo "+ apt-get install$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of names
apt-get install -qq -y --no-install-recommends $missing >/dev/null
