"""The commands `archive` and `maintain-archive`: messages in Delta tables.

Read `command` first. `arguments` has what a person can type, and `source` what other commands read from an archive.
"""
