"""The viewer's server: a page and the data it draws, for one user on this machine."""
