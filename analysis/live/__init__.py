"""Measurements that are still being written: the last seconds, and a database that grows.

``recent_window`` is for ``hpcd top``, which needs no database; ``live_merge`` merges anew as a
measurement grows, for ``hpcd view --live``.
"""
