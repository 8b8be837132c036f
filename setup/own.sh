#!/bin/sh
# own.sh: gives what root made in another user's checkout to the owner of the checkout, who else
# could not lint, test or clean it any more.
set -eu

if [ "$(id -u)" = 0 ] && [ "$(stat -c %u pyproject.toml)" != 0 ]; then
	for made in .venv build ./*.egg-info .hypothesis .*_cache; do
		if [ -d "$made" ]; then
			find "$made" -xdev -user root -exec chown -h --reference=pyproject.toml {} +
		fi
	done
	[ ! -e hpcd/_version.py ] || chown -h --reference=pyproject.toml hpcd/_version.py
	find . -xdev -name __pycache__ -user root -exec chown -hR --reference=pyproject.toml {} +
fi
