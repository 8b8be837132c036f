"""The packages, installed where nothing else of hpcd is: `make test-packages`."""
