#!/bin/sh
# venv.sh DIR REQUIREMENT...: a virtual environment on Debian's own Python, the only one that sees
# Debian's bcc, with hpcd in it. Does nothing when pyproject.toml has not changed since.
set -eu

venv=$1
shift
stamp="$venv/.installed"
want="$* $(cksum <pyproject.toml)"
if [ -x "$venv/bin/hpcd" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
	exit 0
fi
echo "+ /usr/bin/python3 -m venv --system-site-packages $venv"
/usr/bin/python3 -m venv --system-site-packages "$venv"
echo "+ $venv/bin/pip install $*"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
echo "$want" >"$stamp"
