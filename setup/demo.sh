#!/bin/sh
# The demonstration: a molecular dynamics program on two ranks that takes longer than it should.
# Records it, finds out why, records it with the remedy, and compares.
set -eu

out=build/demo
hpcd=.venv/bin/hpcd

if [ "$(id -u)" != 0 ]; then
	echo "recording needs root; run: sudo make demo" >&2
	exit 4
fi
say() {
	printf '\n# %s\n' "$*"
}
run() {
	echo "+ $*"
	"$@"
}

rm -rf "$out"
mkdir -p "$out"
cat >"$out/in.drop" <<'INPUT'
# LAMMPS: a drop of liquid in the left half of a box, whose right half is empty.
variable     balanced index no
units        lj
atom_style   atomic
processors   2 1 1
lattice      fcc 0.8442
region       box block 0 40 0 20 0 20
create_box   1 box
region       drop block 0 20 0 20 0 20
create_atoms 1 region drop
mass         1 1.0
velocity     all create 1.44 87287 loop geom
pair_style   lj/cut 2.5
pair_coeff   1 1 1.0 1.0 2.5
neighbor     0.3 bin
neigh_modify delay 0 every 20 check no
comm_style   brick
if "${balanced} == yes" then "balance 1.05 shift x 20 1.05"
fix          1 all nve
thermo       50
run          150
INPUT

# One thread a rank: the ranks themselves fill the cores.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Results are kept here, also under sudo, which would keep them in the caller's home.
export HPCD_RESULTS="$PWD/$out"
unset SUDO_UID
# record NAME BALANCED: record the program from its start, and report; the database is NAME.
record() {
	if ! run "$hpcd" profile --name "$1" -- mpirun --allow-run-as-root --oversubscribe -n 2 \
		lmp -in "$out/in.drop" -log "$out/$1.log" -screen none -v balanced "$2"; then
		echo "the program itself failed:" >&2
		tail -n 5 "$out/$1.log" >&2
		exit 1
	fi
}

say "This takes about half a minute."
say "Two ranks simulate 32,800 atoms, recorded from the start (hpcd attach records what runs already)."
record uneven no
run "$hpcd" check "$out/uneven"

say "Who waits for whom? The first line of the table is where the waiting comes from."
run "$hpcd" imbalance "$out/uneven" --percent 5 --depth 9
run "$hpcd" render "$out/uneven" -o "$out/uneven.png"

say "All atoms are in rank 0's half of the box. LAMMPS can move the border between the ranks:"
record even yes
run "$hpcd" render "$out/even" -o "$out/even.png"

say "What changed in the simulation's loop?"
loop="LAMMPS_NS::Verlet::run(int)"
run "$hpcd" compare "$out/uneven" "$out/even" --within "$loop" --metric time --hotspot 5 --depth 9 \
	>"$out/compare.txt"
cat "$out/compare.txt"
say "hpcd says of the loop, and LAMMPS itself:"
grep '^time in' "$out/compare.txt"
grep -h '^Loop time' "$out/uneven.log" "$out/even.log"
echo
echo "pictures: $PWD/$out/uneven.png and even.png"
echo "look around in both: $hpcd view $out/uneven $out/even"
