#!/bin/sh
# bpf_object.sh: compile the BPF programs ahead, for all kernels, with clang. Does nothing when the
# object of the present sources is there.
set -eu

if ! command -v clang >/dev/null; then
	echo "the BPF object needs clang: apt-get install clang" >&2
	exit 1
fi
object=$(.venv/bin/python -c "from hpcd.bpf.loading.object_loader import object_path; print(object_path())")
[ -e "$object" ] && exit 0
case $(uname -m) in
x86_64) machine=HPCD_X86_64 ;;
aarch64) machine=HPCD_AARCH64 ;;
*) echo "no BPF object for this processor" >&2; exit 1 ;;
esac
folder=$(dirname "$object")
sources=$(dirname "$folder")/programs
mkdir -p "$folder"
rm -f "$folder"/sampler-*.o
echo "+ clang -target bpf ... $object"
clang -O2 -g -target bpf -mcpu=v3 -DHPCD_OBJECT -D$machine -I"$sources" -Wall \
	-Wno-unused-function -c "$sources/sampler.bpf.c" -o "$object.new"
# Without what debuggers need; what libbpf needs (BTF) stays.
llvm-strip -g "$object.new"
mv "$object.new" "$object"
