#!/bin/sh
# image.sh FOLDER MACHINE: the root file system of the emulated machine, FOLDER/root-MACHINE.img: Debian 12 with the
# packages of guest-packages.txt and this checkout's .venv, at the path it has here. Made anew where one of these
# changed. MACHINE is amd64 or arm64.
set -eu

here=$(dirname "$0")
machine=$2
image=$1/root-$machine.img root=$1/root log=$1/image.log
packages=$(sed 's/#.*//' "$here/guest-packages.txt")

# logged COMMAND...: shows what the command says if it fails.
logged() {
	"$@" >"$log" 2>&1 && return
	tail -5 "$log" >&2
	exit 1
}

# of_this_machine: Debian as it is installed.
of_this_machine() {
	logged debootstrap --variant=minbase bookworm "$root"
	# Its own resolver of dependencies does not choose between alternatives.
	# shellcheck disable=SC2086  # a list of names
	logged chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages
	mkdir -p "$root$PWD"
	cp -a .venv "$root$PWD/"
}

# of_another: packages that are unpacked only, since to set them up would need that processor, and in .venv the
# packages that are compiled, for it.
of_another() {
	# shellcheck disable=SC2086
	logged debootstrap --foreign --arch="$machine" --variant=minbase \
		--include="$(echo $packages | sed 's/ python3-bpfcc//; s/ /,/g')" bookworm "$root"
	for package in "$root"/var/cache/apt/archives/*.deb; do
		dpkg-deb -x "$package" "$root"
	done
	rm -rf "$root/debootstrap"
	echo "root:x:0:0:root:/root:/bin/bash" >"$root/etc/passwd"
	echo "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin" >>"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	for link in cc=gcc c++=g++ awk=mawk mpirun=mpirun.openmpi; do
		ln -sf "${link#*=}" "$root/usr/bin/${link%=*}"
	done
	site=$root$PWD/.venv/lib/python3.11/site-packages
	mkdir -p "$site"
	cp -a .venv/bin .venv/pyvenv.cfg "$root$PWD/.venv/"
	for package in __editable__ hpcd sdnotify; do # sdnotify has no wheel
		cp -a .venv/lib/python3.11/site-packages/$package* "$site/"
	done
	logged sh setup/site-aarch64.sh "$site"
}

if [ -e "$image" ] && [ "$image" -nt "$here/guest-packages.txt" ] &&
	[ "$image" -nt .venv/pyvenv.cfg ]; then
	exit 0
fi
rm -rf "$root"
echo "+ debootstrap $root"
if [ "$machine" = "$(dpkg --print-architecture)" ]; then
	of_this_machine
else
	of_another
fi
cp "$root/bin/busybox" "$1/busybox-$machine"
rm -rf "$root"/var/cache/apt "$root"/usr/share/doc "$root"/usr/share/locale
mkdir -p "$root/results"
echo "+ mkfs.ext4 $image"
rm -f "$image.new"
mkfs.ext4 -q -d "$root" "$image.new" 6G
rm -rf "$root"
mv "$image.new" "$image"
