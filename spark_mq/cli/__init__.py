"""The command line: arguments in, one call, a report out.

Read `entry` and `main` (the entry point, the names of commands, and how errors end) first, then the commands:

- find: `messages`, `tables` (the commands of tables), `sql`, `archive`;
- understand: `life` (also why-not-consumed), `retention` (also expire), `report`, `allocate`;
- act on a running cluster: `consumers` (offsets set, one message consumed), `resend`;
- check and mend: `check`, `state`, `recover`, `verify`, `compare`, `repair`, `rebuild`, `restore`;
- of the program itself: `program`, `doctor`.

What they share:

- What a person types: `command` (how a command and its arguments are declared), `arguments` (their values),
  `several_stores`, `archive_source`.
- What a person sees: `output` (rows and messages) and `progress_printer`.
- `engine` decides where a job runs: in this process, or on Spark. `spark` starts the Spark session of a
  command. `interrupt` handles Ctrl-C, and `exit_status` has the exit statuses.

A module here may import every other package. It imports Spark, pyarrow and the package's own layers inside functions,
so that `spark-mq --help` and point commands load only what they use.
"""
