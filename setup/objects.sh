#!/bin/sh
# objects.sh [MACHINE...]: compile ahead, with clang, the BPF programs (the sampler, without and with those
# that record calls, and the iterator over threads), for all kernels of Linux, and the kernels that work on
# records (hpcd/kernels); for this processor, or those named (x86_64, aarch64). Does nothing for which the object
# of the present sources is there. PYTHON is the interpreter to ask where it belongs; it has cffi.
set -eu

for tool in clang llvm-strip ld.lld; do
	command -v $tool >/dev/null && continue
	echo "the objects need $tool: apt-get install clang llvm lld" >&2
	exit 1
done
python=${PYTHON:-.venv/bin/python}
[ $# != 0 ] || set -- "$(uname -m)"

# compile SOURCE OBJECT OLD-OBJECTS FLAG...: SOURCE below bpf/programs, unless OBJECT is there.
compile() {
	source=$1 object=$2 old=$3
	shift 3
	[ -e "$object" ] && return
	folder=$(dirname "$object")
	sources=$(dirname "$folder")/programs
	mkdir -p "$folder"
	rm -f "$folder"/$old
	echo "+ clang -target bpf ... $object"
	# BTF has the sources' names: as they are called here, wherever here is.
	clang -O2 -g -target bpf -mcpu=v3 -D$machine -DHPCD_OBJECT -I"$sources" -Wall -Wno-unused-function "$@" \
		-fdebug-prefix-map="$PWD=." -c "$sources/$source" -o "$object.new"
	# Without what debuggers need; what libbpf needs (BTF) stays.
	llvm-strip -g "$object.new"
	mv "$object.new" "$object"
}

# kernels LIBRARY LEVEL FLAG...: the kernels, unless LIBRARY is there. lld links for any processor.
kernels() {
	level=$2
	library=$(echo "$1" | sed "s/-$machine_name-/-$machine_name$level-/")
	shift 2
	[ -e "$library" ] && return
	folder=$(dirname "$library")
	mkdir -p "$folder"
	rm -f "$folder/kernels-$machine_name$level"-*.so
	echo "+ clang -shared ... $library"
	clang -O3 --target="$machine_name-linux-gnu" -std=c11 -ffreestanding -fwrapv -ffp-contract=off -fPIC -fvisibility=hidden "$@" \
		-Wall -Wextra -Werror -shared -nostdlib -fuse-ld=lld -Wl,--build-id=none \
		"$(dirname "$folder")"/sources/*.c -o "$library.new"
	llvm-strip "$library.new"
	chmod 644 "$library.new"
	mv "$library.new" "$library"
}

# path MODULE FUNCTION: where this checkout's file for the processor belongs, which need not be installed.
path() {
	PYTHONPATH=$tree "$python" -P -c "from hpcd.$1 import $2; print($2())" |
		sed "s|^$tree/||; s|^hpcd/bpf/|bpf/|; s/-$(uname -m)-/-$machine_name-/"
}

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
sh setup/tree.sh "$tree"
for machine_name in "$@"; do
	case $machine_name in
	x86_64) machine=HPCD_X86_64 ;;
	aarch64) machine=HPCD_AARCH64 ;;
	*) echo "no objects for the processor $machine_name" >&2; exit 1 ;;
	esac
	compile sampler.bpf.c "$(path bpf.loading.object_loader object_path)" "sampler-$machine_name-*.o"
	compile sampler.bpf.c "$(path bpf.loading.object_loader calls_object_path)" \
		"sampler_calls-$machine_name-*.o" -DHPCD_CALLS
	compile iterators/task_stacks.bpf.c "$(path bpf.task_iterator iterator_path)" \
		"task_stacks-$machine_name-*.o"
	library=$(path kernels.library library_path)
	kernels "$library" ""
	# Planes of bytes are widened in half to a quarter of the time.
	[ "$machine_name" != x86_64 ] || kernels "$library" _v3 -march=x86-64-v3
done
declarations=$(path kernels.library declarations_path)
if ! [ -e "$declarations" ]; then
	rm -f "$(dirname "$declarations")"/declarations-*.cffi
	echo "+ cffi $declarations"
	PYTHONPATH=$tree "$python" -P -c "from hpcd.kernels.library import write_declarations as write
write('$declarations.new')" >/dev/null
	mv "$declarations.new" "$declarations"
fi
