#!/bin/sh
# All tests but the long ones, and lint. What watches running programs has the machine as if to itself, one test after
# another; lint and the rest run in two halves beside it, on the CPU time that is left (SCHED_IDLE).
tools=.venv/bin
short="not long"
structure=tests/unit/analysis/structure

# The command is started a thousand times: compiled once.
unset PYTHONDONTWRITEBYTECODE
folder=$(mktemp -d) || exit 1
trap 'kill $first $second 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
# Each with temporary files of its own: pytest closes its usual folder to other users when it starts,
# also while another one's tests have users in it.
chrt --idle 0 $tools/pytest -m "$short" --basetemp "$folder/unit" tests/unit --ignore=$structure \
	>"$folder/half" 2>&1 & first=$!
{
	code=0
	chrt --idle 0 sh setup/lint.sh || code=$?
	chrt --idle 0 $tools/pytest -m "$short" --basetemp "$folder/viewer" tests/viewer $structure ||
		code=$?
	exit $code
} >"$folder/other" 2>&1 & second=$!
$tools/pytest -m "$short" --basetemp "$folder/live" tests/live tests/service
code=$?
wait $first || code=$?
cat "$folder/half"
wait $second || code=$?
cat "$folder/other"
exit $code
