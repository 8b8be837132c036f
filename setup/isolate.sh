#!/bin/sh
# isolate.sh COMMAND: have a command that pip installed run Python isolated (-I), as root runs it in
# folders that others may write: whatever PYTHONPATH says, and without a user's own packages. pip writes
# the interpreter into the first line, or, where its path is long or has spaces, into the second.
set -eu

isolated() {
	head -n 2 "$1" | grep -q -e ' -I'
}
isolated "$1" && exit 0
sed -i -e '1s|^#!/.*/python[0-9.]*$|& -I|' -e "2s|^'''exec' .*python[0-9.]*\"*|& -I|" "$1"
isolated "$1" || { echo "isolate.sh: $1 names no interpreter" >&2; exit 1; }
