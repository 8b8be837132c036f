#!/bin/sh
# bpf_object.sh [MACHINE...]: compile the BPF programs ahead, for all kernels, with clang: the sampler,
# and the iterator over threads; for this processor, or those named (x86_64, aarch64). Does nothing for
# which the object of the present sources is there. PYTHON is the interpreter to ask where it belongs.
set -eu

if ! command -v clang >/dev/null; then
	echo "the BPF objects need clang: apt-get install clang" >&2
	exit 1
fi
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
	clang -O2 -g -target bpf -mcpu=v3 -D$machine -I"$sources" -Wall -Wno-unused-function "$@" \
		-fdebug-prefix-map="$PWD=." -c "$sources/$source" -o "$object.new"
	# Without what debuggers need; what libbpf needs (BTF) stays.
	llvm-strip -g "$object.new"
	mv "$object.new" "$object"
}

# object MODULE FUNCTION: where this checkout's object belongs, which need not be installed.
object() {
	name=$(PYTHONPATH=$tree "$python" -P -c "from hpcd.bpf.loading.$1 import $2; print($2().name)")
	echo "bpf/objects/$name" | sed "s/-$(uname -m)-/-$machine_name-/"
}

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
sh setup/tree.sh "$tree"
for machine_name in "$@"; do
	case $machine_name in
	x86_64) machine=HPCD_X86_64 ;;
	aarch64) machine=HPCD_AARCH64 ;;
	*) echo "no BPF object for the processor $machine_name" >&2; exit 1 ;;
	esac
	compile sampler.bpf.c "$(object object_loader object_path)" "sampler-$machine_name-*.o" -DHPCD_OBJECT
	compile iterators/task_stacks.bpf.c "$(object iterator_loader iterator_path)" \
		"task_stacks-$machine_name-*.o"
done
