#!/bin/sh
# All tests, in four streams. What judges times and shares of running programs has the machine as if to
# itself, one test after another. What counts their calls, bytes and names goes beside it, behind it
# (nice), and after that the benchmarks, each at its smallest size. The rest runs in two halves on the
# CPU time that nobody else wants (SCHED_IDLE).
tools=.venv/bin
counting="tests/live/test_annotate.py tests/live/test_io_calls.py tests/live/test_memory_calls.py
          tests/live/test_names_kept.py tests/live/test_readme.py tests/live/test_recorded_messages.py
          tests/live/test_tutorial.py tests/formats/test_mpi_traffic.py tests/live/test_benchmarks.py"
half="tests/unit tests/formats --ignore=tests/unit/test_structure.py --ignore=tests/unit/test_soak.py
      --ignore=tests/formats/test_offline_benchmarks.py --ignore=tests/formats/test_mpi_traffic.py"
other_half="tests/viewer tests/unit/test_structure.py tests/formats/test_offline_benchmarks.py"
judging="tests/live tests/service tests/unit/test_soak.py"
for file in $counting; do judging="$judging --ignore=$file"; done

# The command is started a thousand times: compiled once.
unset PYTHONDONTWRITEBYTECODE
folder=$(mktemp -d) || exit 1
trap 'kill $streams 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
streams=
# stream NAME COMMAND...: in the background, with what it prints in a file.
stream() {
	name=$1
	shift
	"$@" >"$folder/$name" 2>&1 &
	streams="$streams $!"
}
stream counting nice -n 5 $tools/pytest $counting
stream half chrt --idle 0 $tools/pytest $half
stream other_half chrt --idle 0 $tools/pytest $other_half
$tools/pytest $judging
code=$?
for process in $streams; do wait "$process" || code=$?; done
cat "$folder/counting" "$folder/half" "$folder/other_half"
exit $code
