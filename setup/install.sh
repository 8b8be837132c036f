#!/bin/sh
# install.sh PREFIX DESTDIR: hpcd in an environment of its own, PREFIX/lib/hpcd, with the command and
# the manual page where they are looked for. DESTDIR is for those who build packages; PYTHON is the
# interpreter, /usr/bin/python3 unless it is given.
set -eu
# Root runs what is installed: whatever the mask of who installs it, others may read it and no more.
umask 022

prefix=$1
destdir=$2
python=${PYTHON:-/usr/bin/python3}
library=$prefix/lib/hpcd
into=$destdir$library

if ! mkdir -p "$into" "$destdir$prefix/bin" "$destdir$prefix/share/man/man1" 2>/dev/null ||
	! [ -w "$into" ] || ! [ -w "$destdir$prefix/bin" ]; then
	echo "installing in $destdir$prefix needs root; run: sudo make install" >&2
	exit 1
fi
# Half an installation is worse than none.
trap '[ $? = 0 ] || rm -rf "$into"; sh setup/own.sh' EXIT
echo "+ $python -m venv --clear --system-site-packages $into"
"$python" -m venv --clear --system-site-packages "$into"
# pip builds in build/, and would install what an earlier version left there.
rm -rf build/lib build/bdist.*
echo "+ $into/bin/pip install ."
"$into/bin/pip" install --quiet --disable-pip-version-check .
sh setup/isolate.sh "$into/bin/hpcd"
rm -rf build/lib build/bdist.*
if [ -n "$destdir" ]; then
	# Scripts name their interpreter by its full path: the one they will have. The command is written
	# anew, as what pip writes depends on how long the path here is. Worker processes import it.
	grep -rlIF "$into" "$into/bin" "$into/pyvenv.cfg" | xargs sed -i "s|$into|$library|g"
	cat >"$into/bin/hpcd" <<-END
		#!$library/bin/python3 -I
		import sys

		from hpcd.__main__ import main

		if __name__ == "__main__":
		    sys.exit(main())
	END
	find "$into" -name __pycache__ -prune -exec rm -rf {} +
fi
ln -sfn "$library/bin/hpcd" "$destdir$prefix/bin/hpcd"
install -m 644 docs/hpcd.1 "$destdir$prefix/share/man/man1/hpcd.1"
mkdir -p "$destdir$prefix/share/man/man5"
install -m 644 docs/hpcd.toml.5 "$destdir$prefix/share/man/man5/hpcd.toml.5"
# Completion of verbs and options, where each shell looks for it.
completion() {
	mkdir -p "$destdir$prefix/share/$2"
	"$into/bin/python" -c "import argcomplete; print(argcomplete.shellcode(['hpcd'], shell='$1'))" \
		>"$destdir$prefix/share/$2/$3"
}
completion bash bash-completion/completions hpcd
completion zsh zsh/site-functions _hpcd
completion fish fish/vendor_completions.d hpcd.fish
# The service, where systemd is: installed, not enabled.
units=$destdir/etc/systemd/system
if [ -n "$destdir" ] || [ -d /run/systemd/system ]; then
	mkdir -p "$units" "$destdir/usr/lib/sysusers.d" "$destdir/usr/lib/tmpfiles.d" "$destdir/etc/hpcd"
	sed "s|/usr/local/bin/hpcd|$prefix/bin/hpcd|" systemd/hpcd.service >"$units/hpcd.service"
	install -m 644 systemd/hpcd.socket systemd/hpcd.slice "$units"
	install -m 644 systemd/hpcd.sysusers.conf "$destdir/usr/lib/sysusers.d/hpcd.conf"
	install -m 644 systemd/hpcd.tmpfiles.conf "$destdir/usr/lib/tmpfiles.d/hpcd.conf"
	[ -e "$destdir/etc/hpcd/hpcd.toml" ] || install -m 644 docs/hpcd.toml "$destdir/etc/hpcd/hpcd.toml"
	[ -n "$destdir" ] || { systemd-sysusers; systemd-tmpfiles --create; systemctl daemon-reload; }
	echo "installed hpcd.service; begin with: systemctl enable --now hpcd.socket hpcd.service"
fi
echo "installed $destdir$prefix/bin/hpcd"
