#!/bin/sh
# image.sh FOLDER: the root file system of the emulated machine, FOLDER/root.img: Debian 12 with the packages
# of guest-packages.txt and this checkout's .venv, at the path it has here. Made anew where one of these changed.
set -eu

here=$(dirname "$0")
image=$1/root.img root=$1/root log=$1/image.log

# logged COMMAND...: shows what the command says if it fails.
logged() {
	"$@" >"$log" 2>&1 && return
	tail -5 "$log" >&2
	exit 1
}

if [ -e "$image" ] && [ "$image" -nt "$here/guest-packages.txt" ] &&
	[ "$image" -nt .venv/pyvenv.cfg ]; then
	exit 0
fi
rm -rf "$root"
echo "+ debootstrap $root"
logged debootstrap --variant=minbase bookworm "$root"
# Its own resolver of dependencies does not choose between alternatives.
# shellcheck disable=SC2046  # a list of names
logged chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
	$(sed 's/#.*//' "$here/guest-packages.txt")
rm -rf "$root"/var/cache/apt "$root"/usr/share/doc "$root"/usr/share/locale
mkdir -p "$root$PWD" "$root/results"
cp -a .venv "$root$PWD/"
echo "+ mkfs.ext4 $image"
rm -f "$image.new"
mkfs.ext4 -q -d "$root" "$image.new" 6G
rm -rf "$root"
mv "$image.new" "$image"
