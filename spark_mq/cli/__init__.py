"""The command line: arguments in, one call, a report out.

Read `entry` and `main` (the entry point and how errors end) first, then the modules of the commands: `messages` (which
has `query_by_id`, `query_by_key`, `query_by_unique_key`, `query_by_offset` and `print_message`), `tables` (`segments`,
`queues`, `topics`, `lag`), `sql`, `rebuild`, `archive`, `paths` and `completion`.

- What a person types: `arguments` and `message_arguments` (arguments that several commands share), `columns`
  (`--columns`, `--sort`), `moments` (times), `message_filter` (the filters of `print-message`), `broker_settings` (the
  broker's settings file).
- What a command prints: `value_text` and `display_width` (a value, and its width on a terminal), `terminal`,
  `text_table`, `fields` and `json_lines` (rows in three forms), `message_printer` and `bodies` (messages),
  `dataframe_output` (results of SQL), `reasons` and `similar_names` (why nothing was found), `progress_printer`.
  `output` has what other commands use of these.
- `sql` runs statements in `sql_console`, with `sql_prompt` (Tab, history), `sql_explain`, `sql_archive`, and
  `sql_session` (what is known of a session before it starts).
- `spark` gives a command its Spark session, `interrupt` handles Ctrl-C, `packages` names what to install, and
  `exit_status` has the exit statuses.

A module here may import every other package. It imports Spark, pyarrow and the package's own layers inside functions,
so that `spark-mq --help` and point commands load only what they use.
"""
