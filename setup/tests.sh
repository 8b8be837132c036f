#!/bin/sh
# All tests. What watches running programs has the machine as if to itself, one test after another;
# the rest runs in two halves beside it, on the CPU time that nobody else wants (SCHED_IDLE). When one
# half is done the benchmarks follow, each at its smallest size, behind those that watch (nice).
tools=.venv/bin
benchmarks=tests/live/test_benchmarks.py
watching="tests/live tests/service tests/formats/test_mpi_traffic.py tests/unit/test_soak.py
          --ignore=$benchmarks"
half="tests/unit tests/formats --ignore=tests/unit/test_structure.py --ignore=tests/unit/test_soak.py
      --ignore=tests/formats/test_offline_benchmarks.py --ignore=tests/formats/test_mpi_traffic.py"
other_half="tests/viewer tests/unit/test_structure.py tests/formats/test_offline_benchmarks.py"

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
