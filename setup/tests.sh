#!/bin/sh
# All tests. What watches running programs has the machine as if to itself, one test after another;
# the rest runs in two halves beside it, on the CPU time that nobody else wants (SCHED_IDLE). When one
# half is done the benchmarks follow, each at its smallest size, behind those that watch (nice).
tools=.venv/bin
watching="tests/live tests/service"
structure=tests/unit/analysis/structure
half="tests/unit tests/formats --ignore=$structure"
other_half="tests/viewer $structure tests/benchmarks/test_offline.py"
benchmarks=tests/benchmarks/test_running.py

# The command is started a thousand times: compiled once.
unset PYTHONDONTWRITEBYTECODE
folder=$(mktemp -d) || exit 1
trap 'kill $first $second 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
chrt --idle 0 $tools/pytest $half >"$folder/half" 2>&1 & first=$!
{
	chrt --idle 0 $tools/pytest $other_half
	code=$?
	nice -n 5 $tools/pytest $benchmarks && exit $code
} >"$folder/other" 2>&1 & second=$!
$tools/pytest $watching
code=$?
wait $first || code=$?
cat "$folder/half"
wait $second || code=$?
cat "$folder/other"
exit $code
