"""The command `sql`: Spark SQL over stores and archives, from the command line or at a prompt.

Read `command` first (arguments, and what is checked before Spark starts), then `console`, which runs statements.
`explain` and `archive` answer without Spark or find an archive's tables, and `prompt` has Tab and the history.
"""
