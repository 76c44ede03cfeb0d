"""The commands that print messages, without Spark or a JVM: `query-by-...` and `print-message`.

Read `commands` first, which names the module of each command. `arguments` has the arguments that several of them share,
`message_filter` the filters of `print-message`, and `reasons` says why nothing was found.
"""
