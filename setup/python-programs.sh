#!/bin/sh
# Makes build/programs, an environment with the libraries whose programs benchmarks/python_programs.py records.
set -eu
cd "$(dirname "$0")/.."
/usr/bin/python3 -m venv build/programs
build/programs/bin/pip install --quiet numpy joblib pytest scikit-learn mpi4py fastapi httpx django distributed celery
