#!/bin/sh
# arrange.sh STAGE: what `make install` put into STAGE, where Debian's packages have it.
set -eu

stage=$1

# Units of packages are not the administrator's.
mkdir -p "$stage/lib/systemd"
mv "$stage/etc/systemd/system" "$stage/lib/systemd/system"
rmdir "$stage/etc/systemd"
# Where Debian's zsh and fish look.
mkdir -p "$stage/usr/share/zsh/vendor-completions"
mv "$stage/usr/share/zsh/site-functions/_hpcd" "$stage/usr/share/zsh/vendor-completions/_hpcd"
rmdir "$stage/usr/share/zsh/site-functions"
