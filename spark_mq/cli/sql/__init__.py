"""The command `sql`: Spark SQL over stores and archives, from the command line or at a prompt.

Read `command` first: arguments, what is checked before Spark starts, and the console, which runs statements.
`explain` answers without Spark, and `prompt` has Tab and the history.
"""
