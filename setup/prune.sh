#!/bin/sh
# prune.sh STAGE: what `make install` put into STAGE, without what only installing and building need, and
# without traces of where it was built.
set -eu

stage=$1
site=$(echo "$stage"/usr/lib/hpcd/lib/python3*/site-packages)

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
# Compiled modules have the times of their sources in them.
find "$stage/usr/lib/hpcd" -name __pycache__ -prune -exec rm -rf {} +
# The manual pages are compressed where they are looked for; a second copy is not.
rm -rf "$stage/usr/lib/hpcd/share"
# Modes as they should be, whatever the mask and the archives' said.
find "$stage/usr/lib/hpcd/lib" -type f -exec chmod 644 {} +
