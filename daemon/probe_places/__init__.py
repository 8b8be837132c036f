"""Places for probes in a file and the values recorded there; the decoder looks for them."""
