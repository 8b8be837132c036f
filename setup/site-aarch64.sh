#!/bin/sh
# site-aarch64.sh FOLDER: installs in FOLDER what hpcd and its tests import, for Debian's Python on an Arm processor.
exec .venv/bin/pip install --quiet --disable-pip-version-check --target "$1" \
	--platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
	--python-version 3.11 --only-binary=:all: \
	cffi numpy zstandard psutil rich pyelftools cxxfilt 'symbolic<14' 'iced-x86<1.18' matplotlib prometheus-client \
	starlette uvicorn google-re2 argcomplete pytest pytest-timeout hypothesis
