"""Answers to questions about a database: dataclasses, which ``--json``, the page and Python render.

A field is a key of the JSON, and says its unit; :func:`.json_form.json_form` is their one form.
"""
