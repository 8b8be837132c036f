#!/bin/sh
# venv.sh [EXTRA...]: the virtual environment .venv on Debian's own Python, the only one that sees
# Debian's bcc, with hpcd in it as it stands here, and with the extras named (dev) and those it had
# before. Does nothing when pyproject.toml is the one installed and every library is really there.
set -eu

venv=.venv
# The scripts in an environment name its place and Python: a copied or outdated one is made anew.
place="$PWD/$venv on $(/usr/bin/python3 --version)"
project=$(cksum <pyproject.toml)
# An environment that is made anew for what needs none has extras for what is run next.
had=$(cat $venv/.extras 2>/dev/null || true)
# shellcheck disable=SC2086
set -- $(printf '%s\n' $had "$@" | sort -u)

in_place() {
	[ -x $venv/bin/pip ] && [ "$(cat $venv/.place 2>/dev/null)" = "$place" ]
}
up_to_date() {
	[ -x $venv/bin/hpcd ] && sh setup/isolate.sh $venv/bin/hpcd &&
		[ "$(cat $venv/.project 2>/dev/null)" = "$project" ]
}

if in_place && up_to_date && $venv/bin/python setup/installed.py "$@"; then
	[ "$had" = "$*" ] || echo "$*" >$venv/.extras
	exit 0
fi
trap 'sh setup/own.sh' EXIT
if ! in_place; then
	echo "+ /usr/bin/python3 -m venv --clear --system-site-packages $venv"
	/usr/bin/python3 -m venv --clear --system-site-packages $venv
	echo "$place" >$venv/.place
	echo "$had" >$venv/.extras
fi
what=.
[ $# = 0 ] || what=".[$(echo "$*" | tr ' ' ,)]"
echo "+ $venv/bin/pip install --editable $what"
rm -f $venv/.project
$venv/bin/pip install --quiet --disable-pip-version-check --editable "$what"
sh setup/isolate.sh $venv/bin/hpcd
$venv/bin/python setup/installed.py "$@"
echo "$*" >$venv/.extras
echo "$project" >$venv/.project
