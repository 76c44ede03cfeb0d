"""Stores out of messages: a job that writes a commit log, and then everything that is derived from it.

Of a source, `source_facts` has everything that is not a message. Of the result, `config_files` makes the files of
`config/`, `empty_queues` the queues that have no message any more, and `offset_map` the table of old and new offsets.
"""
