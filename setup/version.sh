#!/bin/sh
# version.sh [COMMIT]: the version of a commit, as setuptools-scm gives it to the wheel: that of the latest
# tag vX.Y.Z, N commits later the next one with .devN. Packages of distributions write ~dev for .dev.
set -eu

commit=${1:-HEAD}
described=$(git describe --tags --long --match 'v[0-9]*' "$commit" 2>/dev/null) ||
	described=v0.1.0-$(git rev-list --count "$commit")-
echo "$described" | awk -F- '{
	version = substr($1, 2)
	if ($2 > 0) {
		last = version
		sub(/.*\./, "", last)
		version = substr(version, 1, length(version) - length(last)) (last + 1) ".dev" $2
	}
	print version
}'
