"""The command line: arguments in, one call, a report out.

Read `entry` and `main` (the entry point and how errors end) first, then the commands: `messages` (`query-by-...`,
`print-message`), `tables` (`segments`, `queues`, `topics`, `lag`), `sql`, `rebuild`, `archive`, `paths`, `completion`.

- What a person types: `arguments` (those of several commands), `moments` (times), `broker_settings` (the broker's
  settings file).
- What a person sees: `output` (rows and messages), `progress_printer`.
- `spark` gives a command its Spark session, which `launch` starts. `interrupt` handles Ctrl-C, `packages` names what to
  install, and `exit_status` has the exit statuses.

A module here may import every other package. It imports Spark, pyarrow and the package's own layers inside functions,
so that `spark-mq --help` and point commands load only what they use.
"""
