#!/bin/sh
# emulated.sh: the tests of the kernels (hpcd/kernels) on an aarch64 that QEMU emulates, with
# Debian's Python for it. Kept in build/aarch64; the first time it needs root and a network.
set -eu

here=$PWD
root=$here/build/aarch64
python=$root/usr/bin/python3.11
if ! [ -x "$python" ]; then
	rm -rf "$root"
	debootstrap --foreign --arch=arm64 --variant=minbase --include=python3,libbpf1 bookworm "$root"
	# Setting the packages up would need that processor, and Python runs without.
	for package in "$root"/var/cache/apt/archives/*.deb; do
		dpkg-deb -x "$package" "$root"
	done
fi
site=$root/site
[ -d "$site" ] || sh setup/site-aarch64.sh "$site"
sh setup/objects.sh aarch64
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
sh setup/tree.sh "$tree/tree"
cp -a tests benchmarks pyproject.toml "$tree/tree"
cd "$tree/tree"
PYTHONPATH=$tree/tree:$site qemu-aarch64-static -L "$root" "$python" -m pytest -q \
	-p no:cacheprovider --timeout 1800 --basetemp="$tree/tests" \
	tests/unit/analysis/merge/test_shares.py tests/unit/analysis/trace/test_line_pictures.py \
	tests/unit/analysis/trace/test_part.py tests/unit/daemon/capture/test_call_paths.py \
	tests/unit/daemon/capture/test_thread_times.py tests/unit/interchange/test_decimal_text.py \
	tests/unit/kernels/test_kernels.py tests/unit/measurement/test_identity_columns.py
