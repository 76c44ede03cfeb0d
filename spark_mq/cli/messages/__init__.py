"""The commands that print messages, without Spark or a JVM.

`query_by_id`, `query_by_key`, `query_by_unique_key`, `query_by_offset` and `print_message` are the commands; `archived`
answers them from an archive. `arguments` has the arguments that several of them share, and `message_filter` the filters
of `print_message`, and why nothing was found.
"""
