#!/bin/sh
# packages.sh FILE...: installs the Debian packages listed in the files; says nothing and downloads
# nothing when all are there. A command installed by other means (npm comes with other packages of
# nodejs, rustc with rustup) stands for the package of its name.
set -eu

if ! command -v dpkg-query >/dev/null; then
	echo "no Debian packages here; install what $* list by other means, then: sh setup/venv.sh" >&2
	exit 1
fi
arch=$(dpkg --print-architecture)
missing=
for package in $(sed 's/#.*//; s/ARCH/'"$arch"'/' "$@"); do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || command -v "$package" >/dev/null || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "installing Debian packages needs root; run: sudo apt-get install$missing" >&2
	exit 1
fi
echo "+ apt-get install$missing"
case " $missing " in
# Tests run an sshd of their own; with this file Debian's service does not serve the whole machine.
*" openssh-server "*) mkdir -p /etc/ssh && : >/etc/ssh/sshd_not_to_be_run ;;
esac
export DEBIAN_FRONTEND=noninteractive
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# shellcheck disable=SC2086  # a list of names
if ! {
	apt-get update -qq &&
		apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 $missing
} >"$said" 2>&1; then
	cat "$said" >&2
	exit 1
fi
