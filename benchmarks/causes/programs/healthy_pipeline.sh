#!/bin/sh
# A pipeline in which each program has something to do.
seq 600000 | sort -R | sort -n | uniq -c | tail -1 >/dev/null
