"""The commands that print messages, without Spark or a JVM.

`look_ups` and `print_message` are the commands. `shared` prints what is found, wherever it is, and `stored` has the
messages of store directories, as an archive and a running cluster have theirs. `message_filter` has the filters of
`print_message`, and why nothing was found.
"""
