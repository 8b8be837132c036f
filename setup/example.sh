#!/bin/sh
# example.sh: records viewer/example/particles.c anew, as the database that `hpcd view --example` opens. Needs
# root and Open MPI.
set -eu

if [ "${1-}" != inside ]; then
	# Paths and names of this machine are in no recording.
	exec unshare --mount --uts -- sh "$0" inside
fi
example=$PWD/viewer/example
python=$PWD/.venv/bin/python
hostname node1
mount -t tmpfs none /srv
mkdir /srv/particles
cp "$example/particles.c" /srv/particles
cd /srv/particles
# Ranks that wait sleep instead of polling: there may be more of them than CPUs. By its name it is a part of
# the C library, not the program.
cat >yield.c <<'END'
#include <time.h>
int sched_yield(void) { return nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }
END
gcc -O2 -fPIC -shared -o libc-yield.so yield.c
mpicc.openmpi -O2 -g -o particles particles.c -L. -Wl,--no-as-needed -lc-yield -Wl,-rpath,"$PWD" -lm
cat >recorder <<'END'
import platform, sys
from hpcd.__main__ import main

release = platform.release().partition("-")[0]
platform.release = lambda: release
sys.exit(main())
END
mkfifo input
# Ranks that sleep when they wait, at real-time priority: what else runs here is not in the picture.
chrt --rr 1 mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 ./particles 25 <input >output &
exec 3>input
until grep -q ready output 2>/dev/null; do sleep 0.1; done
# shellcheck disable=SC2046 # a word for each rank
chrt --rr 2 "$python" recorder attach --mpi --io -o m $(pgrep -x particles | sed 's/^/--pid /') 2>attached 3>&- &
until grep -q attached attached 2>/dev/null; do sleep 0.1; done
exec 3>&-
wait
"$python" -m hpcd merge m -o particles.db
"$python" -m hpcd check particles.db
touch -d @1700000000 particles.c
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@1700000000 -cf - \
	particles.c particles.db | xz -9e >"$example/particles.tar.xz"
ls -l "$example/particles.tar.xz"
