"""Speed and size, measured by hand: `make bench`. Figures are ratios against a peer in one run."""
