#!/bin/sh
# kernels.sh [KERNEL...]: boots Debian's kernels (or those named, such as 6.1-rt-amd64 or 6.12-arm64) by emulation,
# runs the tests of setup/kernels/cases.toml on each, and writes the table in docs/kernels.md. Everything is kept in
# build/kernels: the first time it needs root and a network, and takes some minutes more.
set -eu

folder=$PWD/build/kernels
here=setup/kernels
# Not 6.12-cloud-amd64: QEMU 7.2 ends with a double fault as it boots.
[ $# != 0 ] || set -- 6.1-amd64 6.1-rt-amd64 6.1-cloud-amd64 6.12-amd64 6.12-rt-amd64 6.12-arm64
mkdir -p "$folder"

# apt COMMAND...: apt of the processor $machine with sources of its own, whatever this system has.
apt() {
	APT_CONFIG=$folder/apt-$machine/apt.conf "$@"
}

# kernel NAME: unpacks the newest kernel of that name (SERIES-FLAVOUR) in FOLDER/NAME, unless one is there.
kernel() {
	[ -e "$folder/$1" ] && return
	machine=${1##*-}
	if ! [ -e "$folder/apt-$machine/apt.conf" ]; then
		mkdir -p "$folder/apt-$machine/state/lists/partial" "$folder/apt-$machine/cache/archives/partial"
		signed="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org"
		cat >"$folder/apt-$machine/sources.list" <<-END
			deb $signed/debian bookworm main
			deb $signed/debian-security bookworm-security main
			deb $signed/debian bookworm-backports main
		END
		cat >"$folder/apt-$machine/apt.conf" <<-END
			APT::Architecture "$machine";
			APT::Architectures "$machine";
			Dir::Etc::SourceList "$folder/apt-$machine/sources.list";
			Dir::Etc::SourceParts "-";
			Dir::State "$folder/apt-$machine/state";
			Dir::State::Status "/dev/null";
			Dir::Cache "$folder/apt-$machine/cache";
			APT::Sandbox::User "root";
		END
		apt apt-get update -qq
	fi
	series=${1%%-*} flavour=${1#*-}
	package=$(apt apt-cache show "linux-image-$flavour" |
		sed -n "s/^Depends: \(linux-image-$series\.[^ ]*\).*/\1/p" | head -n 1)
	if [ -z "$package" ]; then
		echo "Debian 12 has no kernel $1" >&2
		exit 1
	fi
	echo "+ apt-get download $package"
	rm -rf "$folder/new"
	mkdir "$folder/new"
	(cd "$folder/new" && apt apt-get download -qq "$package" && dpkg-deb -x ./*.deb . && rm ./*.deb)
	mv "$folder/new" "$folder/$1"
}

for name in "$@"; do
	kernel "$name"
	sh "$here/image.sh" "$folder" "${name##*-}"
	case $name in
	*-arm64) sh setup/objects.sh aarch64 ;;
	esac
done

# This checkout, at the path it has here, and the job.
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
mkdir -p "$files/root$PWD"
git ls-files -co --exclude-standard | tar -cf - -T - bpf/objects hpcd/kernels/objects hpcd/_version.py |
	tar -C "$files/root$PWD" -xf -
install -m 755 "$here/first-process.sh" "$files/root/first-process"
cat >"$files/root/job" <<END
cd $PWD
export PATH=$PWD/.venv/bin:\$PATH
uname -r >/results/release
# A handler takes long on an emulated processor: no reason to allow fewer samples.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
# Interrupted, pytest still writes its report.
python $here/table.py cases | xargs -d '\n' timeout -s INT 1500 pytest -vv -p no:cacheprovider --durations 0 \
	--junitxml /results/report.xml
echo \$? >/results/code
END
tar -C "$files/root" -cf "$files/files.tar" .

# Two at once: much of the time an emulated machine is busy with one of its processors.
code=0
export folder here files
# shellcheck disable=SC2016  # expanded by the shells that xargs starts
printf '%s\n' "$@" | xargs -P 2 -n 1 sh -c '
	results=$folder/results/$1
	rm -rf "$results"
	began=$(date +%s)
	sh "$here/boot.sh" "$folder" "$1" "$files/files.tar" "$results"
	code=$?
	echo "$1: $(($(date +%s) - began)) s; $results/output.txt"
	exit $code' sh || code=1
.venv/bin/python "$here/table.py" write "$folder/results" docs/kernels.md
exit $code
