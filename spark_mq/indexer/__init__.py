"""The batch indexer: consume queues and index files, whole, from the commit log.

Start with `rebuild`: it checks a `rebuild_request`, and runs the stages in order; each stage returns a value.

1. `stage` reads each split of the log once, as tasks (`split_dispatch`). `staged_files` has the row of a split, and the
   files of its units and index entries; the `manifest` names all of them, so that a killed job goes on.
2. `tag_entries` decides which messages have an index entry for their tags.
3. `queue_lives` finds queues that were deleted and used again; `queue_plan` and `queue_runs` give each staged run its
   place in a file, `index_files` each entry.
4. `queue_files` and `queue_writer` (also into RocksDB), and `index_files`, write whole files; `queue_extensions` those
   of extension units, `batch_queues` those of batch consume queues. `index_database` makes the index in RocksDB of
   tables that the first stage wrote.

All stages get a `rebuild_plan`. `trees` runs them for each tree, also for an append, and gives the checkpoint that a
broker accepts. `output_folder` checks the output, `forecast` says what the job would do, and `report` what it did.
"""
