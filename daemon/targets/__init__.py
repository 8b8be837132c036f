"""The processes being recorded: selection, attached threads, jobs and ranks.

:class:`selector.Selector` says which; :class:`attachment.Attachment` attaches;
:class:`process_table.Targets` knows those being recorded.
"""
