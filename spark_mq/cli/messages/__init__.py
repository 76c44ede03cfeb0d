"""The commands that print messages, without Spark or a JVM.

`look_ups` and `print_message` are the commands. `shared` has what they share, also the answers from an archive, and
`message_filter` the filters of `print_message`, and why nothing was found.
"""
