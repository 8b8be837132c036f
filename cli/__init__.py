"""The command line: verbs, the options they share, their output.

One module a verb in ``verbs``; ``output`` prints; ``options`` and ``service_client`` are shared.
"""
