#!/bin/sh
# boot.sh FOLDER KERNEL FILES OUT: boots the kernel unpacked in FOLDER/KERNEL by emulation, on the image of its
# processor (image.sh), which stays as it is, with the archive FILES unpacked in it. /first-process of these runs /job
# of these as root; what that leaves in /results is unpacked into OUT, beside what the machine printed (console.txt).
# Ends with the job's exit code. KERNEL_LIMIT is how long it may take, in seconds.
set -eu

folder=$(realpath "$1")
tree=$folder/$2 files=$3 out=$4
machine=${2##*-}

# Its first file system: loads what the disk needs. What a kernel has built in has no file.
initrd=$tree/initrd.gz
if ! [ -e "$initrd" ]; then
	first=$tree/first
	rm -rf "$first"
	mkdir -p "$first/bin" "$first/modules" "$first/dev" "$first/root"
	cp "$folder/busybox-$machine" "$first/bin/busybox"
	: >"$first/order"
	# add MODULE: it and, before it, what it depends on.
	add() {
		grep -qx "$1" "$first/order" && return
		file=$(find "$tree" -name "$1.ko*" -o -name "$(echo "$1" | tr _ -).ko*" | head -n 1)
		[ -n "$file" ] || return 0
		case $file in
		*.xz) xz -dc "$file" >"$first/modules/$1.ko" ;;
		*) cp "$file" "$first/modules/$1.ko" ;;
		esac
		for need in $(tr '\0' '\n' <"$first/modules/$1.ko" | sed -n 's/^depends=//p' | tr , ' '); do
			add "$need"
		done
		echo "$1" >>"$first/order"
	}
	for module in virtio_pci virtio_blk crc32c_generic ext4; do
		add "$module"
	done
	cat >"$first/init" <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
while read module; do $b insmod "/modules/$module.ko"; done </order
while ! [ -b /dev/vdc ]; do $b sleep 0.1; done
$b mount -t ext4 -o noatime /dev/vda /root || $b poweroff -f
$b tar -C /root -xf /dev/vdb
$b mount --move /dev /root/dev
exec $b switch_root /root /first-process
END
	chmod +x "$first/init"
	(cd "$first" && find . | cpio --quiet -o -H newc | gzip -1 >"$initrd")
	rm -rf "$first"
fi

mkdir -p "$out"
work=$(mktemp -d "$folder/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp "$files" "$work/in.tar"
truncate -s %512 "$work/in.tar"
truncate -s 1G "$work/out.img"
# QEMU 7.2 emulates AVX2 wrongly: a processor without it. What it emulates of an Arm processor that is not the cipher
# of pointer authentication's definition (pauth-impdef) is several times as fast. Behind all else that runs here: on a
# busy machine the timer may tick too late for the kernel's check of it (no_timer_check), and the kernel panics.
case $machine in
amd64) system=x86_64 processor="-cpu Nehalem" console=ttyS0 ;;
arm64) system=aarch64 processor="-M virt -cpu max,pauth-impdef=on" console=ttyAMA0 ;;
esac
# shellcheck disable=SC2086  # words
timeout "${KERNEL_LIMIT:-1800}" nice qemu-system-$system -accel tcg,thread=multi,tb-size=512 $processor -smp 2 -m 4G \
	-kernel "$tree"/boot/vmlinuz-* -initrd "$initrd" -nographic -no-reboot -nic none \
	-append "console=$console panic=-1 loglevel=4 mitigations=off no_timer_check ${KERNEL_OPTIONS:-}" \
	-drive file="$folder/root-$machine.img",format=raw,if=virtio,snapshot=on \
	-drive file="$work/in.tar",format=raw,if=virtio,readonly=on \
	-drive file="$work/out.img",format=raw,if=virtio </dev/null >"$out/console.txt" 2>&1 ||
	echo "$2: the emulator ended with code $?" >&2
if ! tar -C "$out" -xf "$work/out.img" 2>/dev/null || ! [ -e "$out/code" ]; then
	tail -n 5 "$out/console.txt" >&2
	echo "$2: no results; $out/console.txt has what the machine printed" >&2
	exit 1
fi
exit "$(cat "$out/code")"
