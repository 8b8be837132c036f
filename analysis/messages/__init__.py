"""Messages between the ranks of a program, and waits of one for another, from recorded calls of
MPI.

Calls become operations (:mod:`operations`), requests are paired with what ends them
(:mod:`requests`), handles become communicators (:mod:`communicators`), messages and collectives are
matched (:mod:`matching`); from these follow traffic (:mod:`traffic`), clock offsets
(:mod:`clock_offsets`), wait states (:mod:`wait_states`) and delays (:mod:`delays`).
"""
