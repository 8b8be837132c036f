#!/bin/sh
# Asks again and again whether a file is there, which comes after 1.5 s.
(sleep 1.5; : >"$1/there") &
while [ ! -e "$1/there" ]; do sleep 0.02; done
