"""Records in columns, trace lines of threads, and the compiled kernels that make both."""
