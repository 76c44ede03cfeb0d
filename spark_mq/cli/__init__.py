"""The command line: arguments in, one call, a report out.

Read `entry` and `main` (the entry point and how errors end) first, then one module for each group of commands:
`messages` (`query-by-...`, `print-message`), `tables` (`segments`, `queues`, `topics`, `lag`), `sql`, `rebuild` and
`archive`. `sql` runs statements in `sql_console`, with `sql_prompt` (Tab, history), `sql_explain`, `sql_archive`, and
`sql_session` (what is known of a session before it starts). `arguments` has the arguments that several commands share,
and `moments` reads times that a person types. `output` and `dataframe_output` print results, `spark` gives a command
its Spark session, `interrupt` handles Ctrl-C, `packages` names what to install, and `exit_status` has the statuses.

A module here may import every other package. It imports Spark, pyarrow and the package's own layers inside functions,
so that `spark-mq --help` and point commands load only what they use.
"""
