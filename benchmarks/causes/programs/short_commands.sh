#!/bin/sh
# Starts a command for each line of its input.
seq 400 | while read -r line; do expr "$line" + 1 >/dev/null; done
