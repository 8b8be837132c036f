#!/bin/sh
# arrange.sh STAGE: what `make install` put into STAGE, as Debian's packages have it.
set -eu

stage=$1
site=$(echo "$stage"/usr/lib/hpcd/lib/python3*/site-packages)

# Units of packages are not the administrator's.
mkdir -p "$stage/lib/systemd"
mv "$stage/etc/systemd/system" "$stage/lib/systemd/system"
rmdir "$stage/etc/systemd"
# Where Debian's zsh and fish look.
mkdir -p "$stage/usr/share/zsh/vendor-completions"
mv "$stage/usr/share/zsh/site-functions/_hpcd" "$stage/usr/share/zsh/vendor-completions/_hpcd"
rmdir "$stage/usr/share/zsh/site-functions"

# What only installs is not needed any more; nor are the other commands of the libraries.
rm -rf "$site"/pip "$site"/pip-*.dist-info "$site"/setuptools "$site"/setuptools-*.dist-info \
	"$site"/pkg_resources "$site"/_distutils_hack "$site"/distutils-precedence.pth
find "$stage/usr/lib/hpcd/bin" -type f ! -name hpcd -delete
# Tests and C headers of the libraries.
find "$site" -depth -type d \( -name tests -o -name testing \) -path '*/site-packages/*/*' \
	! -path '*/numpy/*' ! -path '*/hpcd/*' -exec rm -rf {} +
find "$site" \( -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' \) \
	! -path '*/hpcd/*' -delete
# Where it was built, which is not disclosed and differs from build to build.
rm -f "$site"/*.dist-info/direct_url.json "$site"/*.dist-info/RECORD
# Compiled modules have the times of their sources in them; the package's are made when it is installed.
find "$stage/usr/lib/hpcd" -name __pycache__ -prune -exec rm -rf {} +
# The manual pages are compressed where they are looked for; a second copy is not.
rm -rf "$stage/usr/lib/hpcd/share"
# Modes as they should be, whatever the mask and the archives' said.
find "$stage/usr/lib/hpcd/lib" -type f -exec chmod 644 {} +
