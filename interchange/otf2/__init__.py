"""OTF2 archives (https://score-p.org): written by its library, read by ``otf2-print``."""
