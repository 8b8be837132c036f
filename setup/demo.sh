#!/bin/sh
# The demonstration: record HPC Challenge on two ranks while it runs, and look at it.
set -eu

out=build/demo
hpcd=.venv/bin/hpcd

if [ "$(id -u)" != 0 ]; then
	echo "recording needs root; run: sudo make demo" >&2
	exit 4
fi
run() {
	echo "+ $*"
	"$@"
}

rm -rf "$out"
mkdir -p "$out"
# HPL on a 3500 x 3500 matrix, a 1 x 2 process grid: about ten seconds on two cores.
cat >"$out/hpccinf.txt" <<'INPUT'
HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
3500         Ns
1            # of NBs
128          NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
1            Ps
2            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
INPUT

# One thread a rank: the ranks themselves fill the cores.
export OPENBLAS_NUM_THREADS=1
echo "+ (cd $out && OPENBLAS_NUM_THREADS=1 mpirun --allow-run-as-root --oversubscribe -n 2 hpcc) &"
(
	cd "$out"
	exec mpirun --allow-run-as-root --oversubscribe -n 2 hpcc
) >"$out/hpcc.log" 2>&1 &
launcher=$!
trap 'kill "$launcher" 2>/dev/null || true' EXIT

run "$hpcd" attach --pid "$launcher" --output "$out/measurement"
if ! wait "$launcher"; then
	echo "hpcc itself failed:" >&2
	tail -n 5 "$out/hpcc.log" >&2
	exit 1
fi
trap - EXIT
run "$hpcd" check "$out/measurement"
run "$hpcd" merge "$out/measurement" -o "$out/database"
run "$hpcd" check "$out/database"
run "$hpcd" report "$out/database" --percent 3
run "$hpcd" report "$out/database" --view bottom-up --percent 5 --depth 3
run "$hpcd" render "$out/database" -o "$out/trace.png"
echo
echo "the trace view is in $PWD/$out/trace.png; to look around in it: $hpcd view $out/database"
