"""Whether a store is sound: everything in it compared with its commit log.

`codes` has all kinds of findings, and `finding` what one of them is. Soundness of one range is a pure function, from
bytes to findings: `records`, `queue_file` (with `queue_ext`), `batch_queue`, `index_file` (with `entry_match`) and
`index_database`, for which `log_bounds` says where the log starts and ends; `tiered` has the files of tiered storage,
and `compaction` the copies of compacted topics. Names, sizes and small files are the matter of `folders` and
`config_files`, which `listed_store` puts together.

`check` runs all of that over a store: as tasks (`log_check`, `queue_task`), in this process or on Spark. `verify` is
the job, also with a sample of the log; `quick` is the check without a read of the whole log;
`result` collects the findings, and is what all of them give. A `journal` says what was sound, so that the next check
reads only what is new.
"""
