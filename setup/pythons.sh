#!/bin/sh
# Unpacks the interpreters of Debian sid into build/pythons, for the tests of Python's frames; installs nothing.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/pythons/packages build/pythons/lists/partial build/pythons/cache/archives/partial
to=$PWD/build/pythons
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main" \
    > "$to/sources.list"
apt() {
    apt-get -o Dir::Etc::SourceList="$to/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$to/lists" -o Dir::Cache="$to/cache" -o APT::Sandbox::User=root "$@"
}
apt update
packages="libc6 libexpat1 zlib1g libffi8 libssl3t64 libzstd1 libbz2-1.0 liblzma5"
for version in 3.14 3.15; do
    packages="$packages python$version-minimal libpython$version-minimal libpython$version-stdlib"
done
(cd "$to/packages" && apt download $packages)
for package in "$to"/packages/*.deb; do
    dpkg-deb -x "$package" "$to"
done
